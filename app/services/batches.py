"""The life of a batch as people steer it: launch, pause, resume, cancel, try again."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import Conflict
from app.models import Batch, BatchState, Campaign, JobState, PauseReason, RenderJob
from app.queues import Queue, ring_after_commit
from app.services import completion
from app.services.batch_checks import check_launch
from app.services.batch_creation import create_batch, duplicate_batch, estimate_batch
from app.services.budgets import change_cap, check_cap, go_on
from app.services.jobs import transition
from app.services.progress import (
    UNSUCCESSFUL_STATES,
    FailureSummary,
    Progress,
    get_progress,
    list_failures,
)
from app.services.scoping import get_in_workspace
from app.services.variant_views import VariantView, get_variant, list_variants

__all__ = [
    "FailureSummary",
    "Progress",
    "VariantView",
    "cancel_batch",
    "create_batch",
    "duplicate_batch",
    "estimate_batch",
    "get_batch",
    "get_progress",
    "get_variant",
    "launch_batch",
    "list_batches",
    "list_failures",
    "list_variants",
    "pause_batch",
    "resume_batch",
    "retry_failed",
    "set_spend_cap",
]


def get_batch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    require(actor, Action.VIEW)
    return get_in_workspace(session, actor, Batch, batch_id)


def list_batches(
    session: Session,
    actor: Actor,
    *,
    campaign_id: UUID | None = None,
    limit: int = 50,
    before: UUID | None = None,
) -> list[Batch]:
    """The newest batches first; `before` is the last id of the page before (ids are in time).

    Single generations, the batches of a hidden campaign, are left out unless it is asked for.
    """
    require(actor, Action.VIEW)
    query = select(Batch).where(Batch.workspace_id == actor.workspace_id)
    if campaign_id is not None:
        query = query.where(Batch.campaign_id == campaign_id)
    else:
        query = query.join(Campaign).where(Campaign.is_hidden.is_(False))
    if before is not None:
        query = query.where(Batch.id < before)
    return list(session.scalars(query.order_by(Batch.id.desc()).limit(limit)))


def launch_batch(
    session: Session, actor: Actor, batch_id: UUID, *, spend_cap_micros: int | None = None
) -> Batch:
    """Start the work that the quote prices; with a cap it pauses before it would spend more.

    BlockedTermError names the variants with terms that were blocked since; they stay quoted.
    """
    batch = _change(session, actor, batch_id, verb="launched", sources=(BatchState.PREVIEWING,))
    check_launch(session, batch)
    if spend_cap_micros is not None:
        batch.spend_cap_micros = check_cap(spend_cap_micros)
    batch.state = BatchState.EXPANDING
    batch.launched_at = session.scalar(select(func.now()))
    session.flush()
    ring_after_commit(session, Queue.CONTROL)
    return batch


def pause_batch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    """Nothing new is claimed; what is being rendered is finished."""
    sources = (BatchState.EXPANDING, BatchState.RUNNING)
    batch = _change(session, actor, batch_id, verb="paused", sources=sources)
    batch.state = BatchState.PAUSED
    session.flush()
    return batch


def resume_batch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    """Go on where `pause_batch` stopped, be it the expansion or the renders."""
    batch = _change(session, actor, batch_id, verb="resumed", sources=(BatchState.PAUSED,))
    if batch.pause_reason is PauseReason.BUDGET:
        raise Conflict(
            "This batch has reached its spend cap. Raise the cap to go on, or cancel it."
        )
    go_on(batch)
    session.flush()
    ring_after_commit(session, Queue.CONTROL)
    return batch


def set_spend_cap(
    session: Session, actor: Actor, batch_id: UUID, *, spend_cap_micros: int | None
) -> Batch:
    """Change what a batch may spend at most (None: its quote); a higher cap lets it go on."""
    sources = (
        BatchState.PREVIEWING,
        BatchState.EXPANDING,
        BatchState.RUNNING,
        BatchState.PAUSED,
    )
    batch = _change(session, actor, batch_id, verb="given a spend cap", sources=sources)
    change_cap(session, batch, spend_cap_micros)
    return batch


def cancel_batch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    """End a batch: at once for what waits, within a step for renders; results are kept.

    Of a very large batch some waiting jobs are cancelled in the background.
    """
    sources = (
        BatchState.PREVIEWING,
        BatchState.EXPANDING,
        BatchState.RUNNING,
        BatchState.PAUSED,
    )
    _check(session, actor, batch_id, verb="cancelled", sources=sources)
    completion.cancel_waiting(session, batch_id)
    batch = _change(session, actor, batch_id, verb="cancelled", sources=sources)
    batch.state = BatchState.CANCELLED
    session.flush()
    completion.end_cancelled(session, batch_id)
    session.refresh(batch)
    ring_after_commit(session, Queue.CONTROL)
    return batch


def retry_failed(session: Session, actor: Actor, batch_id: UUID) -> int:
    """Give failed and quarantined jobs all their tries again; returns how many."""
    sources = (
        BatchState.EXPANDING,
        BatchState.RUNNING,
        BatchState.PAUSED,
        BatchState.COMPLETED,
    )
    batch = _change(session, actor, batch_id, verb="retried", sources=sources)
    moved = transition(
        session,
        RenderJob.batch_id == batch.id,
        to=JobState.QUEUED,
        sources=UNSUCCESSFUL_STATES,
        changes={"start_count": 0, "scheduled_at": func.now()},
    )
    if not moved:
        raise Conflict("No variant of this batch has failed, so there is nothing to try again.")
    if batch.state is BatchState.COMPLETED:
        batch.state = BatchState.RUNNING
        batch.completed_at = None
        session.flush()
    ring_after_commit(session, Queue.CONTROL)
    return len(moved)


def _change(
    session: Session, actor: Actor, batch_id: UUID, *, verb: str, sources: tuple[BatchState, ...]
) -> Batch:
    """The batch, locked, if the actor may spend money and it is in one of the states."""
    batch = _check(session, actor, batch_id, verb=verb, sources=())
    session.refresh(batch, with_for_update={"key_share": True})
    return _check(session, actor, batch_id, verb=verb, sources=sources)


def _check(
    session: Session, actor: Actor, batch_id: UUID, *, verb: str, sources: tuple[BatchState, ...]
) -> Batch:
    """The batch, if the actor may spend money and it is in one of the states (any, if none)."""
    require(actor, Action.LAUNCH)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    if sources and batch.state not in sources:
        raise Conflict(f"A batch that is {batch.state.value} cannot be {verb}.")
    return batch
