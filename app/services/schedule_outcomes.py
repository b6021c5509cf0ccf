"""What comes of a fire: launched, gone on with, queued or left out, written on its record."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.access import Actor, Role
from app.errors import AppError
from app.models import (
    Batch,
    BatchState,
    FireOutcome,
    FireReason,
    OverlapPolicy,
    Schedule,
    ScheduleFire,
)
from app.services import batches, schedule_launches
from app.services.schedule_launches import FireRefusedError

LIVE: Final = (BatchState.EXPANDING, BatchState.RUNNING, BatchState.PAUSED)


def new_record(
    schedule: Schedule, *, due_at: datetime, occurrence: datetime | None
) -> ScheduleFire:
    return ScheduleFire(
        workspace_id=schedule.workspace_id,
        schedule_id=schedule.id,
        time_zone=schedule.time_zone,
        occurrence=occurrence,
        due_at=due_at,
        missed_count=0,
        reason="",
    )


def end(record: ScheduleFire, outcome: FireOutcome, code: FireReason, reason: str) -> None:
    record.outcome, record.reason_code, record.reason = outcome, code, reason


def actor_of(schedule: Schedule) -> Actor:
    """Who acts when a schedule fires by itself."""
    # What was launched by itself is still somebody's.
    return Actor(workspace_id=schedule.workspace_id, role=Role.OWNER, user_id=schedule.created_by)


def perform(
    session: Session, actor: Actor, schedule: Schedule, record: ScheduleFire, now: datetime
) -> None:
    """Launch, or do what the schedule says where the batch before has not ended."""
    live = find_live(session, schedule)
    if live is None:
        launch(session, actor, schedule, record, now)
    elif live.state is BatchState.PAUSED and _was_stopped(session, live):
        batches.resume_batch(session, actor, live.id)
        record.outcome, record.batch_id = FireOutcome.RESUMED, live.id
        record.reason = f"Goes on with the rest of “{live.name}”."
    elif schedule.overlap_policy is OverlapPolicy.SKIP:
        words = f"“{live.name}” had not ended."
        end(record, FireOutcome.SKIPPED, FireReason.OVERLAP, words)
    elif _has_queued(session, schedule):
        end(record, FireOutcome.SKIPPED, FireReason.OVERLAP, "Another one waits already.")
    else:
        words = f"Waits for the end of “{live.name}”."
        end(record, FireOutcome.QUEUED, FireReason.OVERLAP, words)


def launch(
    session: Session, actor: Actor, schedule: Schedule, record: ScheduleFire, now: datetime
) -> None:
    """Launch what the schedule launches, and say on the record what came of it."""
    try:
        with session.begin_nested():
            batch = schedule_launches.launch(session, actor, schedule, now=now)
    except FireRefusedError as refusal:
        end(record, FireOutcome.SKIPPED, refusal.code, refusal.message)
        if refusal.code is FireReason.EXHAUSTED:
            schedule.paused_at, schedule.pause_note = now, refusal.message
    except AppError as error:
        end(record, FireOutcome.FAILED, FireReason.REFUSED, error.message)
    else:
        record.outcome, record.batch_id = FireOutcome.LAUNCHED, batch.id
        if record.reason_code is FireReason.OVERLAP:
            record.reason_code, record.reason = None, ""


def find_live(session: Session, schedule: Schedule) -> Batch | None:
    """The last batch of the schedule that goes on, or waits to go on."""
    return session.scalars(
        select(Batch)
        .join(ScheduleFire, ScheduleFire.batch_id == Batch.id)
        .where(
            ScheduleFire.schedule_id == schedule.id,
            Batch.completed_at.is_(None),
            Batch.state.in_(LIVE),
        )
        .order_by(ScheduleFire.id.desc())
        .limit(1)
        .execution_options(populate_existing=True)
    ).one_or_none()


def _was_stopped(session: Session, batch: Batch) -> bool:
    """Whether a deadline paused the batch, not a person."""
    last = session.scalars(
        select(ScheduleFire.reason_code)
        .where(ScheduleFire.batch_id == batch.id)
        .order_by(ScheduleFire.id.desc())
        .limit(1)
    ).one_or_none()
    return last is FireReason.STOPPED


def _has_queued(session: Session, schedule: Schedule) -> bool:
    number = session.scalar(
        select(func.count())
        .select_from(ScheduleFire)
        .where(ScheduleFire.schedule_id == schedule.id, ScheduleFire.outcome == FireOutcome.QUEUED)
    )
    return bool(number)
