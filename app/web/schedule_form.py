"""The form of a schedule: as it was typed, and as rules once it can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import time
from typing import Any, Self, TypeVar

from pydantic import ValidationError
from werkzeug.datastructures import MultiDict

from app.errors import InvalidInput
from app.models import DeadlinePolicy, MissedPolicy, OverlapPolicy, Schedule, ScheduleMode
from app.services.fire_times import CronTiming, OnceTiming, Timing, Weekday, WeeklyTiming
from app.services.schedule_rules import ScheduleRules, timing_of
from app.web.amounts import read_amount, write_amount

Read = TypeVar("Read", OnceTiming, WeeklyTiming, CronTiming)

WORKDAYS = tuple(day.value for day in Weekday if day not in (Weekday.SAT, Weekday.SUN))


@dataclass(frozen=True, kw_only=True)
class ScheduleForm:
    """What stands in the fields; `errors` by the name of the field."""

    name: str = ""
    kind: str = "once"
    date: str = ""
    time: str = "22:00"
    weekdays: tuple[str, ...] = WORKDAYS
    expression: str = "0 22 * * 1-5"
    time_zone: str = "UTC"
    mode: str = ScheduleMode.REPEAT
    rotation_size: str = ""
    has_fresh_seeds: bool = True
    deadline: str = ""
    deadline_policy: str = DeadlinePolicy.PAUSE
    missed_policy: str = MissedPolicy.RUN_ONCE
    overlap_policy: str = OverlapPolicy.SKIP
    budget: str = ""

    @classmethod
    def read(cls, form: MultiDict[str, str]) -> Self:
        texts = {
            name: form.get(name, "").strip()
            for name in cls.__dataclass_fields__
            if name not in ("weekdays", "has_fresh_seeds")
        }
        return cls(
            **texts,
            weekdays=tuple(form.getlist("weekdays")),
            has_fresh_seeds="has_fresh_seeds" in form,
        )

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        """The form of a schedule as it is."""
        form = cls(
            name=schedule.name,
            time_zone=schedule.time_zone,
            mode=schedule.mode,
            rotation_size=str(schedule.rotation_size or ""),
            has_fresh_seeds=schedule.has_fresh_seeds,
            deadline=f"{schedule.deadline:%H:%M}" if schedule.deadline else "",
            deadline_policy=schedule.deadline_policy,
            missed_policy=schedule.missed_policy,
            overlap_policy=schedule.overlap_policy,
            budget="" if schedule.budget_micros is None else write_amount(schedule.budget_micros),
        )
        timing = timing_of(schedule)
        if isinstance(timing, OnceTiming):
            return replace(form, date=f"{timing.at:%Y-%m-%d}", time=f"{timing.at:%H:%M}")
        if isinstance(timing, CronTiming):
            return replace(form, kind="cron", expression=timing.expression)
        days = tuple(day.value for day in timing.weekdays)
        return replace(form, kind="weekly", weekdays=days, time=f"{timing.at:%H:%M}")

    def to_timing(self) -> Timing:
        """When it fires; InvalidInput names the field that cannot be read."""
        if self.kind == "cron":
            return _read(CronTiming, "expression", expression=self.expression)
        if self.kind == "weekly":
            if not self.weekdays:
                raise InvalidInput("Choose at least one day.", field="weekdays")
            return _read(WeeklyTiming, "time", weekdays=self.weekdays, at=self.time)
        if not self.date:
            raise InvalidInput("Choose a day.", field="date")
        return _read(OnceTiming, "date", at=f"{self.date}T{self.time or '00:00'}")

    def to_rules(self) -> ScheduleRules:
        """All of it; InvalidInput names the field that cannot be read."""
        timing = self.to_timing()
        # A rotation is asked for beside days alone; once always is the batch as it is.
        is_once = isinstance(timing, OnceTiming)
        mode = ScheduleMode.REPEAT if is_once else _choose(ScheduleMode, "mode", self.mode)
        is_rotation = mode is ScheduleMode.ROTATION
        return ScheduleRules(
            timing=timing,
            time_zone=self.time_zone,
            mode=mode,
            rotation_size=_read_size(self.rotation_size) if is_rotation else None,
            has_fresh_seeds=self.has_fresh_seeds and not is_once and not is_rotation,
            deadline=_read_deadline(self.deadline),
            deadline_policy=_choose(DeadlinePolicy, "deadline_policy", self.deadline_policy),
            missed_policy=_choose(MissedPolicy, "missed_policy", self.missed_policy),
            overlap_policy=_choose(OverlapPolicy, "overlap_policy", self.overlap_policy),
            budget_micros=read_amount(self.budget, field="budget", noun="the budget"),
        )


def _read(model: type[Read], field: str, **values: Any) -> Read:
    try:
        return model(**values)
    except ValidationError as error:
        words = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise InvalidInput(f"{words[:1].upper()}{words[1:]}.", field=field) from None


def _choose(enum: Any, field: str, value: str) -> Any:
    try:
        return enum(value)
    except ValueError:
        raise InvalidInput("Choose one of the options.", field=field) from None


def _read_size(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 9:
        raise InvalidInput("Say how many variants each time, as a number.", field="rotation_size")
    return int(text)


def _read_deadline(text: str) -> time | None:
    if not text:
        return None
    try:
        return time.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        raise InvalidInput("Give a time such as 06:00.", field="deadline") from None


def errors_of(error: InvalidInput) -> Mapping[str, str]:
    """Where the message stands: fields of the rules have other names on the form."""
    names = {"timing": "date", "budget_micros": "budget"}
    field = error.field or "form"
    return {names.get(field, field): error.message}
