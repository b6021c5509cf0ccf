"""Reviews: who approved or rejected which variants, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput, NotFound
from app.models import Batch, JobState, Review, ReviewState, ShareLink, User, Variant
from app.services.counters import count_jobs
from app.services.outbox_batches import emit_reviewed, is_reviewed
from app.services.variant_views import FINISHED, VariantFilter, list_variant_ids

MAX_REASON_LENGTH: Final = 2_000
MAX_VARIANTS: Final = 5_000


def set_review(
    session: Session,
    actor: Actor,
    variant_ids: Collection[UUID],
    state: ReviewState,
    reason: str = "",
    *,
    share_link_id: UUID | None = None,
) -> int:
    """Give all the variants the same review and return their number.

    `share_link_id` is the link of a reviewer without an account. NotFound when one of the variants
    is not in the workspace; then none is reviewed.
    """
    require(actor, Action.REVIEW)
    ids = set(variant_ids)
    reason = reason.strip()
    if not 0 < len(ids) <= MAX_VARIANTS:
        raise InvalidInput(f"Choose 1 to {MAX_VARIANTS:,} variants.", field="variant_ids")
    if len(reason) > MAX_REASON_LENGTH or "\0" in reason:
        raise InvalidInput(
            f"The reason has {len(reason):,} characters; {MAX_REASON_LENGTH:,} are allowed.",
            field="reason",
        )
    found = session.scalar(
        select(func.count()).where(Variant.id.in_(ids), Variant.workspace_id == actor.workspace_id)
    )
    if found != len(ids):
        raise NotFound("One of these variants is not in this workspace; nothing was changed.")
    still_open = _lock_open_batches(session, ids)
    values = {
        "state": state,
        "reason": reason,
        "reviewed_by": actor.user_id,
        "share_link_id": share_link_id,
        "updated_at": func.now(),
    }
    rows = [{"variant_id": id_, "workspace_id": actor.workspace_id, **values} for id_ in ids]
    session.execute(
        insert(Review)
        .values(rows)
        .on_conflict_do_update(index_elements=[Review.variant_id], set_=values)
    )
    for batch_id in still_open:
        if is_reviewed(session, batch_id):
            emit_reviewed(session, batch_id)
    return len(ids)


def review_matching(
    session: Session,
    actor: Actor,
    batch_id: UUID,
    wanted: VariantFilter,
    *,
    state: ReviewState,
    reason: str = "",
) -> int:
    """Give all finished variants that the filter means the same review; returns their number."""
    require(actor, Action.REVIEW)
    ids = list_variant_ids(session, actor, batch_id, replace(wanted, states=FINISHED))
    if not ids:
        raise InvalidInput("None of these variants is finished, so there is nothing to review.")
    for start in range(0, len(ids), MAX_VARIANTS):
        set_review(session, actor, ids[start : start + MAX_VARIANTS], state, reason)
    return len(ids)


@dataclass(frozen=True, kw_only=True)
class ReviewCounts:
    """Finished variants of a batch by decision; `pending` are those without one."""

    approved: int
    rejected: int
    pending: int


def count_reviews(session: Session, actor: Actor, batch_id: UUID) -> ReviewCounts:
    """What was decided on a batch; counted anew, so for whole pages and not for their polls."""
    require(actor, Action.VIEW)
    rows = session.execute(
        select(Review.state, func.count())
        .join(Variant, Variant.id == Review.variant_id)
        .where(Variant.batch_id == batch_id, Variant.workspace_id == actor.workspace_id)
        .group_by(Review.state)
    )
    numbers: dict[ReviewState, int] = {row[0]: row[1] for row in rows}
    approved = numbers.get(ReviewState.APPROVED, 0)
    rejected = numbers.get(ReviewState.REJECTED, 0)
    finished = count_jobs(session, batch_id).by_state.get(JobState.SUCCEEDED, 0)
    return ReviewCounts(
        approved=approved, rejected=rejected, pending=max(0, finished - approved - rejected)
    )


def list_reviewed(
    session: Session, actor: Actor, batch_id: UUID, wanted: VariantFilter
) -> dict[UUID, tuple[ReviewState, str]]:
    """State and comment by variant, of those that the filter means and somebody has judged."""
    require(actor, Action.VIEW)
    ids = list_variant_ids(session, actor, batch_id, replace(wanted, states=FINISHED))
    found: dict[UUID, tuple[ReviewState, str]] = {}
    for start in range(0, len(ids), MAX_VARIANTS):
        part = Review.variant_id.in_(ids[start : start + MAX_VARIANTS])
        rows = session.execute(select(Review.variant_id, Review.state, Review.reason).where(part))
        found |= {id_: (state, reason) for id_, state, reason in rows}
    return found


def take_back(
    session: Session,
    actor: Actor,
    batch_id: UUID,
    *,
    at: datetime,
    before: Mapping[UUID, tuple[ReviewState, str]],
) -> int:
    """Undo what the actor reviewed in the transaction of `at`; returns the number of variants.

    Those in `before` get back what they had, the others are open again. What somebody has judged
    anew since then stays.
    """
    require(actor, Action.REVIEW)
    ids = session.scalars(
        select(Review.variant_id)
        .join(Variant, Variant.id == Review.variant_id)
        .where(
            Variant.batch_id == batch_id,
            Review.workspace_id == actor.workspace_id,
            Review.reviewed_by == actor.user_id,
            Review.updated_at == at,
        )
    ).all()
    groups: dict[tuple[ReviewState, str], list[UUID]] = {}
    for id_ in ids:
        groups.setdefault(before.get(id_, (ReviewState.PENDING, "")), []).append(id_)
    for (state, reason), members in groups.items():
        for start in range(0, len(members), MAX_VARIANTS):
            set_review(session, actor, members[start : start + MAX_VARIANTS], state, reason)
    return len(ids)


def reviewer_name(session: Session, review: Review) -> str:
    """Who reviewed: a member's name, or whom the link was for; empty when neither is known."""
    if review.share_link_id is not None:
        query = select(ShareLink.name).where(ShareLink.id == review.share_link_id)
    else:
        query = select(User.name).where(User.id == review.reviewed_by)
    return session.scalar(query) or ""


def _lock_open_batches(session: Session, variant_ids: Collection[UUID]) -> list[UUID]:
    """Batches of the variants that are not reviewed yet.

    Locked, so that of two people who decide on the last variants at once the second sees what the
    first decided; so does whoever completes the batch.
    """
    batches = select(Variant.batch_id).where(Variant.id.in_(variant_ids))
    locked = session.scalars(
        select(Batch.id)
        .where(Batch.id.in_(batches))
        .order_by(Batch.id)
        .with_for_update(key_share=True)
    ).all()
    return [batch_id for batch_id in locked if not is_reviewed(session, batch_id)]
