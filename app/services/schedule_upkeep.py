"""What goes on after a fire: the queue behind a batch that has not ended, and deadlines."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.models import (
    Batch,
    BatchState,
    DeadlinePolicy,
    FireOutcome,
    FireReason,
    Schedule,
    ScheduleFire,
)
from app.services import batches
from app.services.schedule_outcomes import actor_of, end, find_live, launch

TAKE_SIZE = 50


def list_queued(session: Session) -> list[UUID]:
    """Fires that wait for the end of the batch before, the first one first."""
    return list(
        session.scalars(
            select(ScheduleFire.id)
            .where(ScheduleFire.outcome == FireOutcome.QUEUED)
            .order_by(ScheduleFire.id)
            .limit(TAKE_SIZE)
        )
    )


def start_queued(session: Session, fire_id: UUID, *, now: datetime) -> bool:
    """Launch what waits, if the batch before has ended; whether something was launched."""
    schedule = session.scalars(
        select(Schedule)
        .join(ScheduleFire, ScheduleFire.schedule_id == Schedule.id)
        .where(ScheduleFire.id == fire_id, Schedule.paused_at.is_(None))
        .with_for_update(of=Schedule, key_share=True, skip_locked=True)
    ).one_or_none()
    record = session.get(ScheduleFire, fire_id, populate_existing=True)
    if schedule is None or record is None or record.outcome is not FireOutcome.QUEUED:
        return False
    is_launched = False
    if schedule.deleted_at is not None:
        end(record, FireOutcome.SKIPPED, FireReason.OVERLAP, "The schedule was deleted.")
    elif record.deadline_at is not None and record.deadline_at <= now:
        words = "The batch before went on until the deadline."
        end(record, FireOutcome.MISSED, FireReason.WINDOW_OVER, words)
    elif find_live(session, schedule) is None:
        launch(session, actor_of(schedule), schedule, record, now)
        is_launched = record.batch_id is not None
    session.flush()
    return is_launched


def settle_deadlines(session: Session, *, now: datetime) -> int:
    """Pause what goes on behind its deadline, where that is asked for; returns how many fires."""
    found = session.execute(
        select(ScheduleFire, Schedule)
        .join(Schedule, Schedule.id == ScheduleFire.schedule_id)
        .where(
            ScheduleFire.deadline_at <= now,
            ScheduleFire.settled_at.is_(None),
            ScheduleFire.outcome.in_((FireOutcome.LAUNCHED, FireOutcome.RESUMED)),
        )
        .order_by(ScheduleFire.deadline_at)
        .limit(TAKE_SIZE)
        .with_for_update(of=ScheduleFire, skip_locked=True)
    ).all()
    for record, schedule in found:
        record.settled_at = now
        batch = session.get(Batch, record.batch_id) if record.batch_id else None
        if batch is None or batch.state not in (BatchState.EXPANDING, BatchState.RUNNING):
            continue
        actor = actor_of(schedule)
        progress = batches.get_progress(session, actor, batch.id)
        share = f"{progress.done:,} of {progress.total:,} were done"
        if schedule.deadline_policy is DeadlinePolicy.PAUSE:
            batches.pause_batch(session, actor, batch.id)
            record.reason_code = FireReason.STOPPED
            record.reason = f"Paused at the deadline: {share}."
        else:
            record.reason_code = FireReason.LATE
            record.reason = f"Not done by the deadline: {share}, the rest goes on."
    session.flush()
    return len(found)
