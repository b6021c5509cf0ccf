"""The rules of a schedule: read from its row, checked, and written on it with its next time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time
from typing import Final
from zoneinfo import ZoneInfo

from pydantic import TypeAdapter
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.errors import InvalidInput
from app.models import (
    Batch,
    BatchState,
    DeadlinePolicy,
    MissedPolicy,
    OverlapPolicy,
    Schedule,
    ScheduleMode,
)
from app.services.fire_times import OnceTiming, Timing, check_zone, next_occurrence

MAX_ROTATION_SIZE: Final = 100_000
MAX_BUDGET_MICROS: Final = 10**15

_timings: TypeAdapter[Timing] = TypeAdapter(Timing)


@dataclass(frozen=True, kw_only=True)
class ScheduleRules:
    """When a schedule fires, what it launches, and what it does when things go otherwise.

    `has_fresh_seeds` None: each repetition of a whole batch has a seed of its own, because a batch
    that is equal to one before would find every variant rendered already.
    """

    timing: Timing
    time_zone: str
    mode: ScheduleMode = ScheduleMode.REPEAT
    rotation_size: int | None = None
    has_fresh_seeds: bool | None = None
    deadline: time | None = None
    deadline_policy: DeadlinePolicy = DeadlinePolicy.RUN_ON
    missed_policy: MissedPolicy = MissedPolicy.RUN_ONCE
    overlap_policy: OverlapPolicy = OverlapPolicy.SKIP
    budget_micros: int | None = None


def timing_of(schedule: Schedule) -> Timing:
    return _timings.validate_python(schedule.timing)


def rules_of(schedule: Schedule) -> ScheduleRules:
    return ScheduleRules(
        timing=timing_of(schedule),
        time_zone=schedule.time_zone,
        mode=schedule.mode,
        rotation_size=schedule.rotation_size,
        has_fresh_seeds=schedule.has_fresh_seeds,
        deadline=schedule.deadline,
        deadline_policy=schedule.deadline_policy,
        missed_policy=schedule.missed_policy,
        overlap_policy=schedule.overlap_policy,
        budget_micros=schedule.budget_micros,
    )


def now_of(session: Session) -> datetime:
    """The time by the database, which everybody shares."""
    now: datetime = session.scalars(select(func.now())).one()
    return now


def check_batch(batch: Batch, rules: ScheduleRules) -> None:
    """Raise InvalidInput unless the batch can be launched by these rules."""
    is_once = isinstance(rules.timing, OnceTiming)
    if is_once and batch.state is not BatchState.PREVIEWING:
        raise InvalidInput(
            f"This batch is {batch.state.value} already. Make it again, and schedule the new one.",
            field="batch_id",
        )
    if not is_once and batch.spec.get("drafts_batch_id"):
        raise InvalidInput(
            "A batch that finishes drafts can be launched once only: its drafts are finished then.",
            field="batch_id",
        )


def apply_rules(session: Session, schedule: Schedule, rules: ScheduleRules) -> None:
    """Write the rules on a schedule and find its next occurrence; InvalidInput names the field."""
    is_rotation = rules.mode is ScheduleMode.ROTATION
    is_once = isinstance(rules.timing, OnceTiming)
    if is_rotation and is_once:
        raise InvalidInput("A rotation fires again and again: give it days or cron.", field="mode")
    if is_rotation != (rules.rotation_size is not None):
        raise InvalidInput(
            "Say how many variants a rotation launches each time, and only there.",
            field="rotation_size",
        )
    if not 1 <= (rules.rotation_size or 1) <= MAX_ROTATION_SIZE:
        raise InvalidInput(
            f"A rotation launches 1 to {MAX_ROTATION_SIZE:,} variants each time.",
            field="rotation_size",
        )
    if not 1 <= (rules.budget_micros or 1) <= MAX_BUDGET_MICROS or rules.budget_micros == 0:
        raise InvalidInput("A budget is more than nothing.", field="budget_micros")
    is_fresh = rules.has_fresh_seeds
    schedule.has_fresh_seeds = not (is_rotation or is_once) if is_fresh is None else is_fresh
    schedule.mode, schedule.rotation_size = rules.mode, rules.rotation_size
    schedule.timing = rules.timing.model_dump(mode="json")
    schedule.time_zone = check_zone(rules.time_zone).key
    schedule.deadline = rules.deadline.replace(second=0, microsecond=0) if rules.deadline else None
    schedule.deadline_policy = rules.deadline_policy
    schedule.missed_policy, schedule.overlap_policy = rules.missed_policy, rules.overlap_policy
    schedule.budget_micros = rules.budget_micros
    set_next(session, schedule)
    if schedule.next_fire_at is None:
        raise InvalidInput("This time has gone by. Choose a later one.", field="timing")


def set_next(session: Session, schedule: Schedule) -> None:
    """The first occurrence from now on, or none."""
    zone = ZoneInfo(schedule.time_zone)
    found = next_occurrence(timing_of(schedule), zone=zone, after=now_of(session))
    schedule.next_fire_at = found.at if found else None
    schedule.next_occurrence = found.local if found else None
