"""When a schedule fires: local times in an IANA zone become instants, right across clock changes.

One rule covers every kind of timing. An occurrence is a wall-clock time; it fires at the first
instant at which the clock of its zone shows that time or a later one. So a time that a change of
the clocks skips fires as soon as the gap is over, a time that comes twice fires at the first, and
no occurrence fires a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NaiveDatetime,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
)

from app.errors import InvalidInput

MAX_EXPRESSION_LENGTH: Final = 100
# Cron expressions that fire more often are mistakes, and expensive ones.
MIN_INTERVAL: Final = timedelta(minutes=5)
# Every day that matches an expression has the same times; a day and the hour after it say it all.
CHECKED_FROM: Final = datetime(2023, 12, 31, 23, 59)
CHECKED_SPAN: Final = timedelta(hours=25)
SHOWN: Final = 5
LAST_YEAR: Final = 2100
NOON: Final = time(12)


def _without_offset(value: time) -> time:
    if value.tzinfo is not None:
        raise ValueError("give a local time without an offset; the zone is a field of its own")
    return value.replace(second=0, microsecond=0)


# As people write it, "22:00"; seconds are dropped.
LocalTime = Annotated[
    time,
    AfterValidator(_without_offset),
    PlainSerializer(lambda value: value.strftime("%H:%M"), return_type=str),
    WithJsonSchema(
        {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$", "examples": ["22:00"]}
    ),
]


class Weekday(StrEnum):
    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


class _Timing(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OnceTiming(_Timing):
    """Once, at a local time; seconds are dropped."""

    kind: Literal["once"] = "once"
    at: NaiveDatetime

    @field_validator("at")
    @classmethod
    def _to_minute(cls, value: datetime) -> datetime:
        if value.year > LAST_YEAR:
            raise ValueError(f"choose a year up to {LAST_YEAR}")
        return value.replace(second=0, microsecond=0)

    def walk(self, after: datetime) -> Iterator[datetime]:
        """Its local times later than `after`, in order."""
        if self.at > after:
            yield self.at


class WeeklyTiming(_Timing):
    """On some days of the week, at a local time."""

    kind: Literal["weekly"] = "weekly"
    weekdays: tuple[Weekday, ...] = Field(min_length=1, max_length=7)
    at: LocalTime

    @field_validator("weekdays")
    @classmethod
    def _in_order(cls, value: tuple[Weekday, ...]) -> tuple[Weekday, ...]:
        return tuple(day for day in Weekday if day in value)

    def walk(self, after: datetime) -> Iterator[datetime]:
        """Its local times later than `after`, in order."""
        days = {number for number, day in enumerate(Weekday) if day in self.weekdays}
        day = after.date()
        while True:
            local = datetime.combine(day, self.at)
            if local > after and day.weekday() in days:
                yield local
            day += timedelta(days=1)


class CronTiming(_Timing):
    """By a cron expression of five fields, read as Debian's cron reads them."""

    kind: Literal["cron"] = "cron"
    expression: str = Field(min_length=1, max_length=MAX_EXPRESSION_LENGTH)

    @field_validator("expression")
    @classmethod
    def _readable(cls, value: str) -> str:
        expression = " ".join(value.split())
        if len(expression.split()) != 5:
            raise ValueError(
                "a cron expression has five fields: minute, hour, day of month, month, weekday"
            )
        try:
            times = CronSim(expression, CHECKED_FROM)
        except CronSimError as error:
            raise ValueError(f"not a cron expression: {str(error).lower()}") from None
        first = next(times, None)
        if first is None:
            raise ValueError("no date ever matches this cron expression")
        day = (first, *takewhile(lambda local: local - first <= CHECKED_SPAN, times))
        if any(later - earlier < MIN_INTERVAL for earlier, later in pairwise(day)):
            minutes = MIN_INTERVAL // timedelta(minutes=1)
            raise ValueError(f"fires may be {minutes} minutes apart at the closest")
        return expression

    def walk(self, after: datetime) -> Iterator[datetime]:
        """Its local times later than `after`, in order."""
        # Without a zone: what a change of the clocks means is decided here, not there.
        return CronSim(self.expression, after)


Timing = Annotated[OnceTiming | WeeklyTiming | CronTiming, Field(discriminator="kind")]


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """A wall-clock time of a schedule (without a zone) and the instant at which it fires (UTC)."""

    local: datetime
    at: datetime


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """Every zone that can be chosen, in order."""
    # Bare names are links to these, kept for old systems, and say less.
    return ("UTC", *sorted(name for name in available_timezones() if _is_place(name)))


def _is_place(name: str) -> bool:
    region, _, place = name.partition("/")
    return bool(place) and region not in ("Etc", "SystemV", "US", "Canada", "Brazil", "Mexico")


def check_zone(name: str) -> ZoneInfo:
    """The zone; InvalidInput for a name that is none."""
    if name not in available_timezones():
        raise InvalidInput(
            f"There is no time zone {name!r}. Use a name such as Europe/Berlin or UTC.",
            field="time_zone",
        )
    return ZoneInfo(name)


def resolve(local: datetime, zone: ZoneInfo) -> datetime:
    """The first instant (UTC) at which the zone's clock shows `local` or a later time."""
    high = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if _local(high, zone) == local:
        return high
    # `local` falls into a gap: read with the offset before it, it lies behind the change; read
    # with the offset after it, before the change. The change is found between the two.
    low = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        middle -= timedelta(microseconds=middle.microsecond)
        if _local(middle, zone) < local:
            low = middle
        else:
            high = middle
    return high


def next_occurrence(
    timing: OnceTiming | WeeklyTiming | CronTiming, *, zone: ZoneInfo, after: datetime
) -> Occurrence | None:
    """The first occurrence that fires later than the instant `after`; None when there is none."""
    for local in timing.walk(_local(after, zone)):
        # After clocks went back, times that were shown before are walked through once more.
        if (at := resolve(local, zone)) > after:
            return Occurrence(local=local, at=at)
    return None


def list_upcoming(
    timing: OnceTiming | WeeklyTiming | CronTiming,
    *,
    zone: ZoneInfo,
    after: datetime,
    limit: int = SHOWN,
) -> list[Occurrence]:
    """The next occurrences in order, each at an instant of its own."""
    found: list[Occurrence] = []
    while len(found) < limit:
        occurrence = next_occurrence(timing, zone=zone, after=after)
        if occurrence is None:
            break
        found.append(occurrence)
        after = occurrence.at
    return found


def deadline_after(local: datetime, deadline: time, zone: ZoneInfo) -> datetime:
    """The instant (UTC) of the first `deadline` on the clock later than the wall-clock time."""
    day = local.date() if deadline > local.time() else local.date() + timedelta(days=1)
    return resolve(datetime.combine(day, deadline), zone)


def night_of(at: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Begin and end (UTC) of the night that `at` falls into: a night goes from noon to noon."""
    local = _local(at, zone)
    first: date = local.date() if local.time() >= NOON else local.date() - timedelta(days=1)
    begin = datetime.combine(first, NOON)
    return resolve(begin, zone), resolve(begin + timedelta(days=1), zone)


def _local(at: datetime, zone: ZoneInfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None)
