"""Variants as the gallery shows them: with job, artifact and review, page by page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Row, Select, func, or_, select
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
    query = _views(actor).where(Variant.batch_id == batch_id, Variant.ordinal > after_ordinal)
    if state is not None:
        states = UNSUCCESSFUL_STATES if state is JobState.FAILED else (state,)
        query = query.where(_Final.state.in_(states))
    if review is ReviewState.PENDING:
        query = query.where(or_(Review.state.is_(None), Review.state == review))
    elif review is not None:
        query = query.where(Review.state == review)
    if values:
        query = query.where(Variant.values.contains(dict(values)))
    rows = session.execute(query.order_by(Variant.ordinal).limit(limit))
    return [_view(row) for row in rows]


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
