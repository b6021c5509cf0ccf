"""An export: the artifacts of chosen variants under readable names, with what each one shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput
from app.models import Artifact, Batch, Campaign, ReviewState, Variant
from app.services.export_names import BUILT_IN, FileNamer, check_pattern
from app.services.scoping import get_in_workspace
from app.services.variant_views import FINISHED, VariantFilter, VariantView, find_variants

MAX_VARIANTS: Final = 10_000
EXTENSIONS: Final = {
    "video/mp4": "mp4",
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/webp": "webp",
}
_PAGE_SIZE = 500


@dataclass(frozen=True, kw_only=True)
class ExportItem:
    """One file of an export, and its line in the manifest; plain values, no rows."""

    name: str
    storage_key: str
    size_bytes: int
    manifest: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Export:
    """What goes into one archive; `parameters` and `columns` are in the order of the manifest."""

    campaign: str
    batch: str
    batch_id: UUID
    parameters: tuple[str, ...]
    columns: tuple[str, ...]
    items: tuple[ExportItem, ...]

    @property
    def size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.items)


def placeholders(batch: Batch) -> list[str]:
    """Names that a pattern of file names may use for the variants of a batch."""
    parameters = [item["name"] for item in batch.spec.get("parameters", ())]
    return list(dict.fromkeys([*BUILT_IN, *parameters]))


def collect(
    session: Session,
    actor: Actor,
    batch_id: UUID,
    wanted: VariantFilter,
    *,
    pattern: str,
    limit: int = MAX_VARIANTS,
) -> Export:
    """The finished variants that the filter means, named; InvalidInput when there are none."""
    require(actor, Action.VIEW)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    campaign = get_in_workspace(session, actor, Campaign, batch.campaign_id)
    parameters = tuple(item["name"] for item in batch.spec.get("parameters", ()))
    namer = FileNamer(check_pattern(pattern, placeholders(batch)))
    items: list[ExportItem] = []
    columns: dict[str, None] = {}
    finished = replace(wanted, states=FINISHED)
    for view in _finished(session, actor, batch_id, finished, limit=limit):
        artifact = view.artifact
        assert artifact is not None
        columns.update(dict.fromkeys(view.variant.passthrough))
        values = _name_values(view, campaign=campaign.name, batch=batch.name)
        name = namer.name(values, extension=EXTENSIONS.get(artifact.media_type, "bin"))
        items.append(
            ExportItem(
                name=name,
                storage_key=artifact.storage_key,
                size_bytes=artifact.size_bytes,
                manifest=_manifest(view, artifact, name),
            )
        )
    if not items:
        raise InvalidInput("There is no finished variant to export among these.", field="show")
    return Export(
        campaign=campaign.name,
        batch=batch.name,
        batch_id=batch.id,
        parameters=parameters,
        columns=tuple(columns),
        items=tuple(items),
    )


def _finished(
    session: Session, actor: Actor, batch_id: UUID, wanted: VariantFilter, *, limit: int
) -> Iterator[VariantView]:
    after, left = -1, limit
    while left > 0:
        size = min(_PAGE_SIZE, left)
        views = find_variants(session, actor, batch_id, wanted, limit=size, after_ordinal=after)
        yield from views
        if len(views) < size:
            return
        after, left = views[-1].variant.ordinal, left - size
        # Rows are read once; held on to, ten thousand of them would be a lot of memory.
        session.expunge_all()


def _name_values(view: VariantView, *, campaign: str, batch: str) -> dict[str, str]:
    variant = view.variant
    values = {name: str(value) for name, value in variant.values.items()}
    return values | {
        "campaign": campaign,
        "batch": batch,
        "number": f"{variant.ordinal + 1:04d}",
        "row_id": variant.row_id or "",
        "size": _size(variant),
        "seed": str(variant.seed),
        "review": _review(view),
    }


def _manifest(view: VariantView, artifact: Artifact, name: str) -> dict[str, Any]:
    variant, review = view.variant, view.review
    return {
        "file": name,
        "number": variant.ordinal + 1,
        "variant_id": str(variant.id),
        "row_id": variant.row_id or "",
        "values": dict(variant.values),
        "passthrough": dict(variant.passthrough),
        "prompt": variant.prompt,
        "negative_prompt": variant.negative_prompt,
        "seed": variant.seed,
        "review": _review(view),
        "reason": review.reason if review else "",
        "media_type": artifact.media_type,
        "width": artifact.width,
        "height": artifact.height,
        "num_frames": artifact.num_frames,
        "fps": artifact.fps,
        "profile": artifact.profile,
        "size_bytes": artifact.size_bytes,
        "sha256": artifact.sha256,
        "artifact_id": str(artifact.id),
    }


def _review(view: VariantView) -> str:
    return (view.review.state if view.review else ReviewState.PENDING).value


def _size(variant: Variant) -> str:
    return f"{variant.settings['width']}x{variant.settings['height']}"
