"""Variants, their artifacts and their reviews, as the API speaks of them."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from app.api.files import Part, link_to
from app.api.schemas.base import Id, Input, Output, Page, PageQuery, Text, Time
from app.api.schemas.campaigns import Settings
from app.models import Artifact as ArtifactRow
from app.models import JobState, ReviewState
from app.models import Review as ReviewRow
from app.services.reviews import MAX_REASON_LENGTH, MAX_VARIANTS
from app.services.variant_views import VariantView


class Links(Output):
    """Addresses of the files, which need no key and work for some minutes."""

    file: str
    poster: str
    preview: str


class Artifact(Output):
    """A finished render; sizes in pixels and bytes."""

    id: Id
    media_type: str
    width: int
    height: int
    num_frames: int
    fps: float
    size_bytes: int
    sha256: str
    profile: str
    provenance: dict[str, Any]
    created_at: Time
    links: Links

    @classmethod
    def of(cls, row: ArtifactRow) -> Self:
        names = [name for name in cls.model_fields if name != "links"]
        return cls(
            **{name: getattr(row, name) for name in names},
            links=Links(
                file=link_to(row.id, Part.FILE),
                poster=link_to(row.id, Part.POSTER),
                preview=link_to(row.id, Part.PREVIEW),
            ),
        )


class Review(Output):
    state: ReviewState
    reason: str
    updated_at: Time | None

    @classmethod
    def of(cls, row: ReviewRow | None) -> Self:
        if row is None:
            return cls(state=ReviewState.PENDING, reason="", updated_at=None)
        return cls(state=row.state, reason=row.reason, updated_at=row.updated_at)


class Variant(Output):
    """One set of values with its prompt, and what became of it.

    `state` is null as long as nothing was asked to be rendered; `is_preview` says that the
    artifact is only a preview. `draft_id` is the draft that it was finished from.
    """

    id: Id
    batch_id: Id
    ordinal: int
    row_id: str | None
    values: dict[str, str]
    passthrough: dict[str, str]
    prompt: str
    negative_prompt: str
    seed: int
    settings: Settings
    state: JobState | None
    error_code: str | None
    error_message: str | None
    is_preview: bool
    artifact: Artifact | None
    review: Review
    draft_id: Id | None

    @classmethod
    def of(cls, view: VariantView) -> Self:
        row, job = view.variant, view.job
        return cls(
            id=row.id,
            batch_id=row.batch_id,
            ordinal=row.ordinal,
            row_id=row.row_id,
            values=row.values,
            passthrough=row.passthrough,
            prompt=row.prompt,
            negative_prompt=row.negative_prompt,
            seed=row.seed,
            settings=Settings(**row.settings),
            state=job.state if job else None,
            error_code=job.error_code if job else None,
            error_message=job.error_message if job else None,
            is_preview=view.is_preview,
            artifact=Artifact.of(view.artifact) if view.artifact else None,
            review=Review.of(view.review),
            draft_id=row.draft_id,
        )


class VariantPage(Page[Variant]):
    pass


class VariantQuery(PageQuery):
    state: JobState | None = None
    review: ReviewState | None = None


class ReviewInput(Input):
    state: ReviewState
    reason: Text = Field(default="", max_length=MAX_REASON_LENGTH)


class ReviewsCreate(ReviewInput):
    """The same review for many variants: all of them, or none if one is unknown."""

    variant_ids: list[Id] = Field(min_length=1, max_length=MAX_VARIANTS)


class ReviewsSet(Output):
    reviewed: int
