"""Tiles of the gallery: a variant with its picture, state and values, in blocks that page."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from werkzeug.datastructures import MultiDict

from app.models import Batch, JobState, ReviewState
from app.models.render_job import FINAL_STATES
from app.services.batches import VariantView
from app.services.progress import UNSUCCESSFUL_STATES
from app.services.specs import BatchSpec
from app.services.variant_views import FINISHED, VariantFilter
from app.web.media import media_url

BLOCK_SIZE = 48
# Beyond this many values a list is no way to filter.
MAX_FILTER_VALUES = 60

SHOWS = (
    ("all", "All"),
    ("succeeded", "Finished"),
    ("pending", "To review"),
    ("approved", "Approved"),
    ("rejected", "Rejected"),
    ("failed", "Failed"),
    ("running", "Rendering"),
    ("waiting", "Waiting"),
    ("cancelled", "Cancelled"),
)
_STATES: dict[str, Collection[JobState]] = {
    "succeeded": FINISHED,
    "failed": UNSUCCESSFUL_STATES,
    "running": (JobState.RUNNING,),
    "waiting": (JobState.SCHEDULED, JobState.QUEUED, JobState.RETRYABLE),
    "cancelled": (JobState.CANCELLED,),
    **dict.fromkeys((state.value for state in ReviewState), FINISHED),
}
_REVIEWS = {state.value: state for state in ReviewState}
_DIGEST = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class ValueChip:
    name: str
    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Tile:
    """What a tile shows; `version` changes whenever any of it does."""

    variant_id: UUID
    number: int
    state: str
    review: str
    chips: Sequence[ValueChip]
    summary: str
    width: int
    height: int
    poster_url: str | None
    preview_url: str | None
    version: str


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What the gallery is narrowed to: a state or review, a reason of failure, values."""

    show: str = "all"
    values: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None

    @property
    def wanted(self) -> VariantFilter:
        return VariantFilter(
            states=_STATES.get(self.show, ()),
            review=_REVIEWS.get(self.show),
            values=self.values,
            error_digest=self.error,
        )

    @property
    def is_narrow(self) -> bool:
        return self.show != "all" or bool(self.values) or self.error is not None

    def query(self) -> dict[str, str]:
        """The filters as the query of a page's address."""
        query = {f"value:{name}": value for name, value in self.values.items()}
        if self.error is not None:
            query = {"error": self.error, **query}
        return query if self.show == "all" else {"show": self.show, **query}


@dataclass(frozen=True, kw_only=True)
class FilterParameter:
    """A parameter to filter by; without `values` (an upload's column) the value is typed."""

    name: str
    values: Sequence[str]


def read_filters(args: MultiDict[str, str], spec: BatchSpec) -> Filters:
    """Filters from an address; unknown states and parameters are left out."""
    show = args.get("show", "all")
    values = {
        item.name: args[f"value:{item.name}"]
        for item in spec.parameters
        if args.get(f"value:{item.name}")
    }
    error = args.get("error", "")
    return Filters(
        show=show if show in dict(SHOWS) else "all",
        values=values,
        error=error if _DIGEST.fullmatch(error) else None,
    )


def tile_of(view: VariantView, kinds: Mapping[str, str]) -> Tile:
    variant, artifact = view.variant, view.artifact
    state = view.job.state if view.job else JobState.QUEUED
    review = view.review.state if view.review else ReviewState.PENDING
    chips = [
        ValueChip(name=name, kind=kinds.get(name, "choice"), text=str(value))
        for name, value in in_order(variant.values, kinds)
    ]
    seen = f"{state} {review} {artifact.id if artifact else '-'}"
    return Tile(
        variant_id=variant.id,
        number=variant.ordinal + 1,
        state=state,
        review=review,
        chips=chips,
        summary=", ".join(chip.text for chip in chips) or variant.prompt,
        width=variant.settings["width"],
        height=variant.settings["height"],
        poster_url=media_url(artifact.id, "poster") if artifact else None,
        preview_url=media_url(artifact.id, "preview") if artifact else None,
        version=hashlib.sha256(seen.encode()).hexdigest()[:12],
    )


def in_order(values: Mapping[str, Any], names: Iterable[str]) -> list[tuple[str, Any]]:
    """Values in the order of the prompt's parameters; JSON in Postgres has an order of its own."""
    return [(name, values[name]) for name in names if name in values]


def spec_of(batch: Batch) -> BatchSpec:
    return BatchSpec.model_validate(batch.spec)


def kinds_of(spec: BatchSpec) -> dict[str, str]:
    return {item.name: item.kind for item in spec.parameters}


def is_settled(tile: Tile) -> bool:
    """True when a tile changes only by somebody's doing."""
    return JobState(tile.state) in FINAL_STATES


def block_etag(tiles: Sequence[Tile], *extra: object) -> str:
    """The version of a block: that of its tiles, and of what else stands in the answer."""
    text = " ".join([*(f"{tile.variant_id} {tile.version}" for tile in tiles), *map(str, extra)])
    return hashlib.sha256(text.encode()).hexdigest()[:24]
