"""The end of a batch: noticed by whoever finishes its last job, recorded exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import ColumnElement, Exists, Row, exists, func, select, update
from sqlalchemy.orm import Session

from app.models import (
    CLAIMABLE_STATES,
    Batch,
    BatchState,
    JobPurpose,
    JobState,
    RenderJob,
    WebhookEventType,
)
from app.services.jobs import is_live, transition
from app.services.outbox_batches import emit_batch, emit_reviewed, is_reviewed

# Jobs of a cancelled batch are swept in steps, so that no statement holds locks for long.
SWEEP_SIZE = 5_000

WAITING_STATES = CLAIMABLE_STATES | {JobState.SCHEDULED}


def complete_if_done(session: Session, batch_ids: Iterable[UUID]) -> None:
    """Complete those of the batches whose last final job has ended in this transaction.

    Two finishers of the last two jobs do not see each other's change. The lock on the batch
    makes the second wait for the first, and its next statement sees what the first committed.
    """
    for batch_id in sorted(set(batch_ids)):
        # Without a lock while work is waiting: it is not the end, and finishers stay parallel.
        if not _has_jobs(session, batch_id, RenderJob.state.in_(WAITING_STATES)):
            _complete(session, batch_id)


def complete_finished(session: Session) -> int:
    """Complete what a finisher that died could not, and end cancelled batches; returns how many."""
    done = 0
    running = (
        Batch.completed_at.is_(None),
        Batch.state.in_((BatchState.RUNNING, BatchState.PAUSED)),
    )
    for batch_id in session.scalars(select(Batch.id).where(*running, ~_any_live_job())).all():
        done += _complete(session, batch_id)
    return done


def sweep_stopped(session: Session, *, limit: int = SWEEP_SIZE) -> int:
    """Cancel waiting jobs of cancelled and failed batches; end those that have none left.

    Returns how many jobs were swept; call it again while that is `limit`.
    """
    stopped = (
        Batch.completed_at.is_(None),
        Batch.state.in_((BatchState.CANCELLED, BatchState.FAILED)),
    )
    ids = session.scalars(select(Batch.id).where(*stopped)).all()
    if not ids:
        return 0
    swept = transition(
        session,
        RenderJob.batch_id.in_(ids),
        to=JobState.CANCELLED,
        sources=WAITING_STATES,
        limit=limit,
    )
    ended = session.execute(
        update(Batch)
        .where(Batch.id.in_(ids), *stopped, ~_any_live_job(of_any_purpose=True))
        .values(completed_at=func.now())
        .returning(Batch.id, Batch.state),
        execution_options={"synchronize_session": False},
    ).all()
    _tell_cancelled(session, ended)
    return len(swept)


def cancel_waiting(session: Session, batch_id: UUID, *, limit: int = SWEEP_SIZE) -> int:
    """Cancel what waits in a batch, as far as one transaction should; returns how many.

    The caller cancels the batch after this: whoever ends jobs locks them before their batch.
    """
    moved = transition(
        session,
        RenderJob.batch_id == batch_id,
        to=JobState.CANCELLED,
        sources=WAITING_STATES,
        limit=limit,
    )
    return len(moved)


def end_cancelled(session: Session, batch_id: UUID) -> None:
    """Let a cancelled batch end at once when nothing of it is alive any more."""
    ended = session.execute(
        update(Batch)
        .where(
            Batch.id == batch_id,
            Batch.state == BatchState.CANCELLED,
            ~_any_live_job(of_any_purpose=True),
        )
        .values(completed_at=func.now())
        .returning(Batch.id, Batch.state),
        execution_options={"synchronize_session": False},
    ).all()
    _tell_cancelled(session, ended)


def _tell_cancelled(session: Session, ended: Iterable[Row[UUID, BatchState]]) -> None:
    for batch in ended:
        # A failed one has told so at once.
        if batch.state is BatchState.CANCELLED:
            emit_batch(session, batch.id, WebhookEventType.BATCH_CANCELLED)


def _complete(session: Session, batch_id: UUID) -> bool:
    batch = session.execute(
        select(Batch.state, Batch.expanded_at)
        .where(Batch.id == batch_id)
        .with_for_update(key_share=True)
    ).one()
    if batch.state not in (BatchState.RUNNING, BatchState.PAUSED) or batch.expanded_at is None:
        return False
    if _has_jobs(session, batch_id, is_live()):
        return False
    # A preview that nobody has rendered by now is of no use any more.
    transition(
        session,
        RenderJob.batch_id == batch_id,
        to=JobState.CANCELLED,
        sources=WAITING_STATES,
    )
    session.execute(
        update(Batch)
        .where(Batch.id == batch_id)
        .values(state=BatchState.COMPLETED, completed_at=func.now()),
        execution_options={"synchronize_session": False},
    )
    emit_batch(session, batch_id, WebhookEventType.BATCH_COMPLETED)
    if is_reviewed(session, batch_id):
        emit_reviewed(session, batch_id)
    return True


def _has_jobs(session: Session, batch_id: UUID, condition: ColumnElement[bool]) -> bool:
    return bool(
        session.scalar(
            select(
                exists().where(
                    RenderJob.batch_id == batch_id,
                    RenderJob.purpose == JobPurpose.FINAL,
                    condition,
                )
            )
        )
    )


def _any_live_job(*, of_any_purpose: bool = False) -> Exists:
    found = exists().where(RenderJob.batch_id == Batch.id, is_live())
    return found if of_any_purpose else found.where(RenderJob.purpose == JobPurpose.FINAL)
