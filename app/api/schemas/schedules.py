"""Schedules and what became of their times, as the API speaks of them."""

from __future__ import annotations

from datetime import datetime
from typing import Self
from zoneinfo import ZoneInfo

from pydantic import Field, NaiveDatetime

from app.api.schemas.base import Id, Input, Output, Page, PageQuery, Text, Time
from app.models import (
    DeadlinePolicy,
    FireOutcome,
    FireReason,
    MissedPolicy,
    OverlapPolicy,
    ScheduleMode,
)
from app.models import Schedule as ScheduleRow
from app.models import ScheduleFire as ScheduleFireRow
from app.services.fire_times import LocalTime, Occurrence, Timing
from app.services.schedule_rules import MAX_BUDGET_MICROS, MAX_ROTATION_SIZE, timing_of
from app.services.schedules import MAX_NAME_LENGTH, MAX_NOTE_LENGTH

MAX_ZONE_LENGTH = 64

_ROTATION = "Combinations that a rotation launches each time; in the mode `rotation` alone."
_SEEDS = (
    "A seed of its own for each batch. With equal seeds, variants that were rendered before are "
    "reused. Left out: true for a whole batch that repeats, else false."
)
_DEADLINE = "A local time, the first one after the launch."
_BUDGET = (
    "Most that the batches of one night, from noon to noon, may cost. A rotation launches fewer "
    "variants instead; a whole batch that costs more is not launched."
)


class ScheduleRulesInput(Input):
    timing: Timing
    time_zone: Text = Field(
        min_length=1, max_length=MAX_ZONE_LENGTH, examples=["Europe/Berlin", "UTC"]
    )
    mode: ScheduleMode = ScheduleMode.REPEAT
    rotation_size: int | None = Field(
        default=None, ge=1, le=MAX_ROTATION_SIZE, description=_ROTATION
    )
    has_fresh_seeds: bool | None = Field(default=None, description=_SEEDS)
    deadline: LocalTime | None = Field(default=None, description=_DEADLINE)
    deadline_policy: DeadlinePolicy = DeadlinePolicy.RUN_ON
    missed_policy: MissedPolicy = MissedPolicy.RUN_ONCE
    overlap_policy: OverlapPolicy = OverlapPolicy.SKIP
    budget_micros: int | None = Field(default=None, ge=1, le=MAX_BUDGET_MICROS, description=_BUDGET)


class ScheduleCreate(ScheduleRulesInput):
    """The batch is launched by the first time, while it waits, and copies of it after that."""

    batch_id: Id
    name: Text | None = Field(default=None, min_length=1, max_length=MAX_NAME_LENGTH)


class ScheduleUpdate(Input):
    """What is to change; everything else stays. Null takes a deadline or a budget away."""

    name: Text | None = Field(default=None, min_length=1, max_length=MAX_NAME_LENGTH)
    timing: Timing | None = None
    time_zone: Text | None = Field(default=None, min_length=1, max_length=MAX_ZONE_LENGTH)
    mode: ScheduleMode | None = None
    rotation_size: int | None = Field(
        default=None, ge=1, le=MAX_ROTATION_SIZE, description=_ROTATION
    )
    has_fresh_seeds: bool | None = Field(default=None, description=_SEEDS)
    deadline: LocalTime | None = Field(default=None, description=_DEADLINE)
    deadline_policy: DeadlinePolicy | None = None
    missed_policy: MissedPolicy | None = None
    overlap_policy: OverlapPolicy | None = None
    budget_micros: int | None = Field(default=None, ge=1, le=MAX_BUDGET_MICROS, description=_BUDGET)


class SchedulePause(Input):
    note: Text = Field(default="", max_length=MAX_NOTE_LENGTH)


class NextFire(Output):
    """A time on the clock of the schedule's zone, and when that is."""

    local: NaiveDatetime
    at: Time = Field(description="With the offset of the zone at that time.")

    @classmethod
    def of(cls, occurrence: Occurrence, zone: str) -> Self:
        return cls(local=occurrence.local, at=occurrence.at.astimezone(ZoneInfo(zone)))


class Schedule(Output):
    id: Id
    name: str
    campaign_id: Id
    batch_id: Id
    timing: Timing
    time_zone: str
    mode: ScheduleMode
    rotation_size: int | None
    rotation_position: int = Field(description="Combinations that were used so far.")
    has_fresh_seeds: bool
    deadline: LocalTime | None
    deadline_policy: DeadlinePolicy
    missed_policy: MissedPolicy
    overlap_policy: OverlapPolicy
    budget_micros: int | None
    next_fire_at: Time | None = Field(description="Null when none is left, or while it is paused.")
    next_fires: list[NextFire]
    fire_count: int
    paused_at: Time | None
    pause_note: str
    created_at: Time

    @classmethod
    def of(cls, row: ScheduleRow, upcoming: list[Occurrence]) -> Self:
        copied = set(cls.model_fields) - {"timing", "next_fire_at", "next_fires"}
        return cls(
            **{name: getattr(row, name) for name in copied},
            timing=timing_of(row),
            next_fire_at=row.next_fire_at if row.paused_at is None else None,
            next_fires=[NextFire.of(item, row.time_zone) for item in upcoming],
        )


class SchedulePage(Page[Schedule]):
    pass


class ScheduleQuery(PageQuery):
    campaign_id: Id | None = None
    batch_id: Id | None = None


class ScheduleFire(Output):
    """One time: what was due, and what came of it."""

    id: Id
    schedule_id: Id
    occurrence: datetime | None = Field(
        description="On the clock of `time_zone`; null where somebody asked for it."
    )
    time_zone: str
    due_at: Time
    missed_count: int = Field(description="Later times that had passed too, answered by this one.")
    outcome: FireOutcome
    reason_code: FireReason | None
    reason: str
    batch_id: Id | None
    deadline_at: Time | None
    created_at: Time

    @classmethod
    def of(cls, row: ScheduleFireRow) -> Self:
        return cls(**{name: getattr(row, name) for name in cls.model_fields})


class ScheduleFirePage(Page[ScheduleFire]):
    pass
