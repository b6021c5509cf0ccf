"""Local times become instants: against a walk through every minute of days of clock changes."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, time, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from app.errors import InvalidInput
from app.services.fire_times import (
    CronTiming,
    OnceTiming,
    Timing,
    Weekday,
    WeeklyTiming,
    check_zone,
    deadline_after,
    list_upcoming,
    next_occurrence,
    night_of,
    resolve,
    zone_names,
)
from tests.clocks import CHANGES, Reached, walk_minutes

# In each of the two properties.
CASES = 600
SPAN = timedelta(days=2)

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")


def members(values: list[int], mask: int) -> frozenset[int]:
    """Those of the values whose bits are set."""
    return frozenset(value for bit, value in enumerate(values) if mask >> bit & 1)


# Minutes, hours and weekdays (0 is Sunday); most hours are those at which clocks change.
MINUTES = st.integers(1, 2**12 - 1).map(partial(members, list(range(0, 60, 5))))
HOURS = st.integers(1, 2**8 - 1).map(partial(members, [0, 1, 2, 3, 4, 12, 22, 23]))
WEEKDAYS = st.integers(1, 2**7 - 1).map(partial(members, list(range(7))))


@st.composite
def cases(draw: st.DrawFn) -> tuple[ZoneInfo, list[Reached], datetime]:
    """A zone, its minutes around a change of its clocks, and an instant among them."""
    name = draw(st.sampled_from(sorted(CHANGES)))
    day = draw(st.sampled_from(CHANGES[name]))
    noon = datetime.combine(day, time(12), tzinfo=UTC)
    after = noon + timedelta(seconds=draw(st.integers(-36 * 3600, 18 * 3600)))
    until = after + SPAN
    walked = walk_minutes(name, noon)
    begin, end = (bisect_right(walked, at, key=lambda pair: pair[1]) for at in (after, until))
    return ZoneInfo(name), walked[begin:end], after


@settings(max_examples=CASES, deadline=None)
@given(minutes=MINUTES, hours=HOURS, days=WEEKDAYS, case=cases())
def test_cron_fires_when_the_clock_first_reaches_a_matching_minute(
    minutes: frozenset[int],
    hours: frozenset[int],
    days: frozenset[int],
    case: tuple[ZoneInfo, list[Reached], datetime],
) -> None:
    zone, walked, after = case
    expected = []
    for local, at in walked:
        is_match = (
            local.minute in minutes and local.hour in hours and (local.weekday() + 1) % 7 in days
        )
        # Several occurrences that a gap swallows fire together, as the first of them.
        if is_match and (not expected or expected[-1][1] < at):
            expected.append((local, at))
    fields = (",".join(map(str, sorted(numbers))) for numbers in (minutes, hours))
    weekdays = "*" if len(days) == 7 else ",".join(map(str, sorted(days)))
    timing = CronTiming(expression=f"{' '.join(fields)} * * {weekdays}")
    # One more, which lies behind all that was walked.
    *found, rest = list_upcoming(timing, zone=zone, after=after, limit=len(expected) + 1)
    assert [(item.local, item.at) for item in found] == expected
    assert rest.at > after + SPAN


@settings(max_examples=CASES, deadline=None)
@given(
    at=st.times().map(lambda value: value.replace(second=0, microsecond=0)),
    days=WEEKDAYS,
    case=cases(),
)
def test_weekdays_fire_once_at_the_first_instant_of_their_time_or_after_a_gap(
    at: time, days: frozenset[Weekday], case: tuple[ZoneInfo, list[Reached], datetime]
) -> None:
    zone, walked, after = case
    names = [name for number, name in enumerate(Weekday) if number in days]
    expected = [
        (local, instant)
        for local, instant in walked
        if local.time() == at and local.weekday() in days
    ]
    timing = WeeklyTiming(weekdays=tuple(names), at=at)
    # One more, which lies behind all that was walked.
    *found, rest = list_upcoming(timing, zone=zone, after=after, limit=len(expected) + 1)
    assert [(item.local, item.at) for item in found] == expected
    assert rest.at > after + SPAN


def test_a_time_that_a_change_skips_fires_as_soon_as_the_gap_is_over() -> None:
    timing = WeeklyTiming(weekdays=tuple(Weekday), at=time(2, 30))
    after = datetime(2026, 3, 28, 12, tzinfo=UTC)
    first, second = list_upcoming(timing, zone=BERLIN, after=after, limit=2)
    assert first.local == datetime(2026, 3, 29, 2, 30)
    assert first.at == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    assert first.at.astimezone(BERLIN).isoformat() == "2026-03-29T03:00:00+02:00"
    assert second.at.astimezone(BERLIN).isoformat() == "2026-03-30T02:30:00+02:00"


def test_a_time_that_comes_twice_fires_once_at_the_first() -> None:
    timing = CronTiming(expression="30 1 * * *")
    after = datetime(2026, 10, 31, 12, tzinfo=UTC)
    shown = [
        item.at.astimezone(NEW_YORK).isoformat()
        for item in list_upcoming(timing, zone=NEW_YORK, after=after, limit=3)
    ]
    assert shown == [
        "2026-11-01T01:30:00-04:00",
        "2026-11-02T01:30:00-05:00",
        "2026-11-03T01:30:00-05:00",
    ]


def test_between_the_two_of_a_doubled_time_the_next_one_is_the_day_after() -> None:
    timing = CronTiming(expression="30 1 * * *")
    between = datetime(2026, 11, 1, 6, 10, tzinfo=UTC)
    assert between.astimezone(NEW_YORK).isoformat() == "2026-11-01T01:10:00-05:00"
    found = next_occurrence(timing, zone=NEW_YORK, after=between)
    assert found is not None
    assert found.at == datetime(2026, 11, 2, 6, 30, tzinfo=UTC)


def test_a_day_that_a_zone_skips_fires_at_its_end() -> None:
    apia = ZoneInfo("Pacific/Apia")
    at = resolve(datetime(2011, 12, 30, 22, 0), apia)
    assert at == datetime(2011, 12, 30, 10, 0, tzinfo=UTC)
    assert at.astimezone(apia).isoformat() == "2011-12-31T00:00:00+14:00"


def test_once_fires_once_and_never_after_its_time() -> None:
    timing = OnceTiming(at=datetime(2026, 12, 1, 22, 0, 59))
    before = datetime(2026, 12, 1, 20, tzinfo=UTC)
    found = list_upcoming(timing, zone=BERLIN, after=before)
    assert [item.at for item in found] == [datetime(2026, 12, 1, 21, tzinfo=UTC)]
    assert next_occurrence(timing, zone=BERLIN, after=found[0].at) is None


def test_a_deadline_is_the_next_time_that_the_clock_shows_it() -> None:
    evening = datetime(2026, 3, 28, 22, 0)
    # The night is an hour shorter: seven hours from 22:00 to 06:00.
    assert deadline_after(evening, time(6), BERLIN) == datetime(2026, 3, 29, 4, tzinfo=UTC)
    assert deadline_after(evening, time(23), BERLIN) == datetime(2026, 3, 28, 22, tzinfo=UTC)
    assert deadline_after(evening, time(22), BERLIN) == datetime(2026, 3, 29, 20, tzinfo=UTC)


def test_a_night_goes_from_noon_to_noon() -> None:
    expected = (datetime(2026, 3, 28, 11, tzinfo=UTC), datetime(2026, 3, 29, 10, tzinfo=UTC))
    for hour in (11, 23, 33):
        at = datetime(2026, 3, 28, tzinfo=UTC) + timedelta(hours=hour)
        assert night_of(at, BERLIN) == expected
    assert night_of(expected[1], BERLIN)[0] == expected[1]


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("0 22 * *", "five fields"),
        ("0 0 22 * * *", "five fields"),
        ("61 22 * * *", "bad minute"),
        ("0 22 30 2 *", "day-of-month"),
        ("* * * * *", "5 minutes apart"),
        ("59,0 23,0 * * *", "5 minutes apart"),
        ("*/3 4 29 2 *", "5 minutes apart"),
        ("x" * 101, "at most 100"),
    ],
)
def test_an_expression_that_cannot_be_used_is_refused(expression: str, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        CronTiming(expression=expression)


@pytest.mark.parametrize("expression", ["*/5 * * * *", "0 22 * * 1-5", "0 0 29 2 MON", "0 3 L * *"])
def test_an_expression_that_can_be_used_is_taken(expression: str) -> None:
    assert CronTiming(expression=f" {expression} ").expression == expression


def test_a_timing_is_read_back_as_it_was_written() -> None:
    adapter: TypeAdapter[Timing] = TypeAdapter(Timing)
    for timing in (
        OnceTiming(at=datetime(2026, 12, 1, 22)),
        WeeklyTiming(weekdays=(Weekday.FRI, Weekday.MON), at=time(22, 15)),
        CronTiming(expression="0 22 * * 1-5"),
    ):
        assert adapter.validate_python(timing.model_dump(mode="json")) == timing
    with pytest.raises(ValidationError, match="without an offset"):
        adapter.validate_python({"kind": "weekly", "weekdays": ["mon"], "at": "22:00+02:00"})


def test_only_zones_that_exist_are_taken() -> None:
    assert check_zone("Asia/Kolkata").key == "Asia/Kolkata"
    for name in ("Europe/Atlantis", "../etc/passwd", ""):
        with pytest.raises(InvalidInput, match="time zone") as caught:
            check_zone(name)
        assert caught.value.field == "time_zone"
    assert {"UTC", "Europe/Berlin", "America/New_York"} < set(zone_names())
