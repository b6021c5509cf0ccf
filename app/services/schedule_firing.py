"""Fires schedules: each occurrence once, in one transaction with the batch that it launches.

Whoever moves `next_fire_at` from the value that it saw has fired the schedule. The move, the row
that records the occurrence and the batch commit together, so a crash neither loses nor doubles one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.models import (
    FireOutcome,
    FireReason,
    MissedPolicy,
    Schedule,
    ScheduleFire,
)
from app.services.fire_times import Occurrence, deadline_after, next_occurrence
from app.services.schedule_outcomes import actor_of, end, new_record, perform
from app.services.schedule_rules import timing_of
from app.services.schedules import get_locked

# Later than this, nothing ran when the occurrence came.
LATE_AFTER: Final = timedelta(minutes=10)
TAKE_SIZE: Final = 50


@dataclass(frozen=True, kw_only=True)
class DueSchedule:
    """A schedule to be fired, by the time that was seen on it."""

    schedule_id: UUID
    due_at: datetime


def list_due(session: Session, *, now: datetime) -> list[DueSchedule]:
    """Schedules whose time has come, the longest due first."""
    found = session.execute(
        select(Schedule.id, Schedule.next_fire_at)
        .where(_may_fire(), Schedule.next_fire_at <= now)
        .order_by(Schedule.next_fire_at)
        .limit(TAKE_SIZE)
    )
    return [DueSchedule(schedule_id=id_, due_at=at) for id_, at in found if at is not None]


def fire(session: Session, due: DueSchedule, *, now: datetime) -> ScheduleFire | None:
    """Fire a schedule for the occurrence that is due; None when somebody else has, or does now."""
    schedule = _take(session, due)
    if schedule is None:
        return None
    taken = _move_on(schedule, due, now)
    if taken is None or _is_recorded(session, schedule, taken.first):
        return None
    record = new_record(schedule, due_at=due.due_at, occurrence=taken.first.local)
    record.missed_count = taken.passed
    if schedule.deadline is not None:
        # Of several that have passed, the last may still have its night before it.
        zone = ZoneInfo(schedule.time_zone)
        record.deadline_at = deadline_after(taken.last.local, schedule.deadline, zone)
    is_late = now - due.due_at > LATE_AFTER
    if is_late and schedule.missed_policy is MissedPolicy.SKIP:
        end(record, FireOutcome.MISSED, FireReason.AWAY, "Adloom was not running at that time.")
    elif record.deadline_at is not None and record.deadline_at <= now:
        end(record, FireOutcome.MISSED, FireReason.WINDOW_OVER, "The deadline had gone by.")
    else:
        if is_late:
            record.reason_code = FireReason.AWAY
            record.reason = "Later than planned: Adloom was not running at that time."
        perform(session, actor_of(schedule), schedule, record, now)
    session.add(record)
    session.flush()
    return record


def record_error(session: Session, due: DueSchedule, *, now: datetime) -> None:
    """Go on to the next occurrence after one at which firing itself broke down."""
    schedule = _take(session, due)
    if schedule is None or (taken := _move_on(schedule, due, now)) is None:
        return
    record = new_record(schedule, due_at=due.due_at, occurrence=taken.first.local)
    end(
        record,
        FireOutcome.FAILED,
        FireReason.ERROR,
        "Something went wrong inside Adloom; its log says more.",
    )
    session.add(record)


def run_now(session: Session, actor: Actor, schedule_id: UUID, *, now: datetime) -> ScheduleFire:
    """Fire at once, besides the schedule's own times and also while it is paused.

    The record says whether something was launched, or why not.
    """
    require(actor, Action.LAUNCH)
    schedule = get_locked(session, actor, schedule_id)
    schedule.fire_count += 1
    record = new_record(schedule, due_at=now, occurrence=None)
    if schedule.deadline is not None:
        zone = ZoneInfo(schedule.time_zone)
        local = now.astimezone(zone).replace(tzinfo=None)
        record.deadline_at = deadline_after(local, schedule.deadline, zone)
    perform(session, actor, schedule, record, now)
    session.add(record)
    session.flush()
    return record


@dataclass(frozen=True, kw_only=True)
class _Taken:
    """The occurrence that is due, the last that has passed, and how many came after the first."""

    first: Occurrence
    last: Occurrence
    passed: int


def _take(session: Session, due: DueSchedule) -> Schedule | None:
    """The schedule, locked, if it is still due as it was seen and nobody else has it."""
    return session.scalars(
        select(Schedule)
        .where(
            Schedule.id == due.schedule_id,
            Schedule.next_fire_at == due.due_at,
            _may_fire(),
        )
        .with_for_update(key_share=True, skip_locked=True)
        .execution_options(populate_existing=True)
    ).one_or_none()


def _move_on(schedule: Schedule, due: DueSchedule, now: datetime) -> _Taken | None:
    """Set the schedule's next occurrence behind `now`, past all that have gone by."""
    if schedule.next_occurrence is None:
        return None
    timing, zone = timing_of(schedule), ZoneInfo(schedule.time_zone)
    first = last = Occurrence(local=schedule.next_occurrence, at=due.due_at)
    passed = 0
    following = next_occurrence(timing, zone=zone, after=last.at)
    while following is not None and following.at <= now:
        last, passed = following, passed + 1
        following = next_occurrence(timing, zone=zone, after=last.at)
    schedule.next_fire_at = following.at if following else None
    schedule.next_occurrence = following.local if following else None
    schedule.fire_count += 1
    return _Taken(first=first, last=last, passed=passed)


def _may_fire() -> ColumnElement[bool]:
    return Schedule.paused_at.is_(None) & Schedule.deleted_at.is_(None)


def _is_recorded(session: Session, schedule: Schedule, occurrence: Occurrence) -> bool:
    """Whether this occurrence was fired before, so that a changed schedule comes upon it again."""
    return bool(
        session.scalar(
            select(
                exists().where(
                    ScheduleFire.schedule_id == schedule.id,
                    ScheduleFire.time_zone == schedule.time_zone,
                    ScheduleFire.occurrence == occurrence.local,
                )
            )
        )
    )
