"""Variants as the gallery shows them: with job, artifact and review, page by page."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, func, or_, select
from sqlalchemy.orm import Session, aliased

from app.access import Action, Actor, require
from app.errors import NotFound
from app.models import (
    Artifact,
    JobPurpose,
    JobState,
    RenderJob,
    Review,
    ReviewState,
    Variant,
)
from app.services.progress import UNSUCCESSFUL_STATES

_Final = aliased(RenderJob, name="final")
_Preview = aliased(RenderJob, name="preview")


@dataclass(frozen=True, kw_only=True)
class VariantView:
    """A variant with its final job, or its preview job before it is launched.

    Before the final artifact is there, `artifact` is the preview's, if one was rendered.
    """

    variant: Variant
    job: RenderJob | None
    artifact: Artifact | None
    review: Review | None

    @property
    def is_preview(self) -> bool:
        """Whether `artifact` is only a preview."""
        if self.artifact is None or self.job is None:
            return False
        return self.job.purpose is JobPurpose.PREVIEW or self.job.artifact_id is None


@dataclass(frozen=True, kw_only=True)
class VariantFilter:
    """Which variants of a batch are meant: by job state, review, values, reason or id; all by none.

    `error_digest` is that of a FailureSummary. `ids` names variants one by one; those that are not
    of the batch are left out. `without_rejected` leaves out what was turned down, but by the share
    link `rejected_by`.
    """

    states: Collection[JobState] = ()
    review: ReviewState | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    error_digest: str | None = None
    ids: Collection[UUID] | None = None
    without_rejected: bool = False
    rejected_by: UUID | None = None

    @property
    def clauses(self) -> list[ColumnElement[bool]]:
        """Conditions on the variant, its final job and its review."""
        found: list[ColumnElement[bool]] = []
        if self.states:
            found.append(_Final.state.in_(self.states))
        if self.review is ReviewState.PENDING:
            found.append(or_(Review.state.is_(None), Review.state == self.review))
        elif self.review is not None:
            found.append(Review.state == self.review)
        if self.without_rejected:
            is_kept = Review.state.is_distinct_from(ReviewState.REJECTED)
            found.append(or_(is_kept, Review.share_link_id == self.rejected_by))
        if self.values:
            found.append(Variant.values.contains(dict(self.values)))
        if self.error_digest is not None:
            found.append(func.md5(_Final.error_message) == self.error_digest)
        if self.ids is not None:
            found.append(Variant.id.in_(self.ids))
        return found


# Finished renders: what can be looked at, reviewed and exported.
FINISHED = frozenset({JobState.SUCCEEDED})


def list_variants(
    session: Session,
    actor: Actor,
    batch_id: UUID,
    *,
    state: JobState | None = None,
    review: ReviewState | None = None,
    values: Mapping[str, str] | None = None,
    limit: int = 48,
    after_ordinal: int = -1,
) -> list[VariantView]:
    """Variants of a batch after an ordinal, narrowed by state, review and parameter values.

    The state "failed" includes those that were quarantined.
    """
    require(actor, Action.VIEW)
    states = UNSUCCESSFUL_STATES if state is JobState.FAILED else (state,) if state else ()
    wanted = VariantFilter(states=states, review=review, values=values or {})
    return find_variants(session, actor, batch_id, wanted, limit=limit, after_ordinal=after_ordinal)


def find_variants(
    session: Session,
    actor: Actor,
    batch_id: UUID,
    wanted: VariantFilter,
    *,
    limit: int = 48,
    after_ordinal: int = -1,
) -> list[VariantView]:
    """Variants of a batch after an ordinal that a filter means."""
    require(actor, Action.VIEW)
    rows = session.execute(
        _views(actor)
        .where(Variant.batch_id == batch_id, Variant.ordinal > after_ordinal, *wanted.clauses)
        .order_by(Variant.ordinal)
        .limit(limit)
    )
    return [_view(row) for row in rows]


def count_variants(session: Session, actor: Actor, batch_id: UUID, wanted: VariantFilter) -> int:
    """How many variants of a batch a filter means."""
    require(actor, Action.VIEW)
    found = _of_batch(select(func.count()), actor, batch_id, wanted)
    return session.scalar(found) or 0


def list_variant_ids(
    session: Session, actor: Actor, batch_id: UUID, wanted: VariantFilter
) -> list[UUID]:
    """The ids of all variants that a filter means, in the order of the batch."""
    require(actor, Action.VIEW)
    found = _of_batch(select(Variant.id), actor, batch_id, wanted)
    return list(session.scalars(found.order_by(Variant.ordinal)))


def list_artifact_keys(
    session: Session, actor: Actor, batch_id: UUID, wanted: VariantFilter, *, limit: int
) -> list[str]:
    """The storage keys of the finished variants that a filter means, in the order of the batch."""
    require(actor, Action.VIEW)
    found = _of_batch(select(Artifact.storage_key), actor, batch_id, wanted)
    found = found.join(Artifact, Artifact.id == _Final.artifact_id)
    return list(session.scalars(found.order_by(Variant.ordinal).limit(limit)))


def _of_batch(
    query: Select[Any], actor: Actor, batch_id: UUID, wanted: VariantFilter
) -> Select[Any]:
    """The query over variants of a batch with their final job and review."""
    return (
        query.select_from(Variant)
        .outerjoin(_Final, (_Final.variant_id == Variant.id) & (_Final.purpose == JobPurpose.FINAL))
        .outerjoin(Review, Review.variant_id == Variant.id)
        .where(
            Variant.workspace_id == actor.workspace_id,
            Variant.batch_id == batch_id,
            *wanted.clauses,
        )
    )


def find_neighbours(session: Session, variant: Variant) -> tuple[UUID | None, UUID | None]:
    """The variants before and after this one in its batch."""
    of_batch = select(Variant.id).where(Variant.batch_id == variant.batch_id).limit(1)
    before = of_batch.where(Variant.ordinal < variant.ordinal).order_by(Variant.ordinal.desc())
    after = of_batch.where(Variant.ordinal > variant.ordinal).order_by(Variant.ordinal)
    return session.scalar(before), session.scalar(after)


def get_variant(session: Session, actor: Actor, variant_id: UUID) -> VariantView:
    require(actor, Action.VIEW)
    row = session.execute(_views(actor).where(Variant.id == variant_id)).one_or_none()
    if row is None:
        raise NotFound("There is no such variant in this workspace.")
    return _view(row)


def _views(actor: Actor) -> Select[Variant, RenderJob, RenderJob, Artifact, Review]:
    shown_artifact = func.coalesce(_Final.artifact_id, _Preview.artifact_id)
    return (
        select(Variant, _Final, _Preview, Artifact, Review)
        .outerjoin(_Final, (_Final.variant_id == Variant.id) & (_Final.purpose == JobPurpose.FINAL))
        .outerjoin(
            _Preview,
            (_Preview.variant_id == Variant.id) & (_Preview.purpose == JobPurpose.PREVIEW),
        )
        .outerjoin(Artifact, Artifact.id == shown_artifact)
        .outerjoin(Review, Review.variant_id == Variant.id)
        .where(Variant.workspace_id == actor.workspace_id)
    )


def _view(row: Row[Variant, RenderJob, RenderJob, Artifact, Review]) -> VariantView:
    variant, final, preview, artifact, review = row
    return VariantView(variant=variant, job=final or preview, artifact=artifact, review=review)
