"""Reviews that go along with reused output: nobody is asked twice about the same pixels."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, any_, bindparam, select
from sqlalchemy.dialects.postgresql import distinct_on, insert
from sqlalchemy.orm import Session, aliased

from app.models import JobPurpose, RenderJob, Review, ReviewState, Variant

DECIDED = (ReviewState.APPROVED, ReviewState.REJECTED)
_COLUMNS = ("state", "reason", "reviewed_by", "share_link_id", "updated_at")


def carry_reviews(session: Session, job_ids: Sequence[UUID]) -> None:
    """Give the variants of these jobs the newest decision on the output that they reuse.

    It is a review of its own from then on: another decision, here or there, changes only one.
    """
    if not job_ids:
        return
    twin, twin_job = aliased(Variant), aliased(RenderJob)
    ids = bindparam(None, list(job_ids), type_=ARRAY(Uuid))
    found = (
        select(Variant.id, Variant.workspace_id, *(getattr(Review, name) for name in _COLUMNS))
        .join(RenderJob, RenderJob.variant_id == Variant.id)
        # By the key, which is indexed; its render may be another one than that which is reused.
        .join(
            twin,
            (twin.workspace_id == Variant.workspace_id)
            & (twin.variant_key == Variant.variant_key)
            & (twin.id != Variant.id),
        )
        .join(
            twin_job,
            (twin_job.variant_id == twin.id)
            & (twin_job.purpose == JobPurpose.FINAL)
            & (twin_job.artifact_id == RenderJob.artifact_id),
        )
        .join(Review, Review.variant_id == twin.id)
        .where(
            RenderJob.id == any_(ids),
            RenderJob.purpose == JobPurpose.FINAL,
            Review.state.in_(DECIDED),
        )
        .ext(distinct_on(Variant.id))
        .order_by(Variant.id, Review.updated_at.desc())
    )
    session.execute(
        insert(Review)
        .from_select(["variant_id", "workspace_id", *_COLUMNS], found)
        .on_conflict_do_nothing()
    )
