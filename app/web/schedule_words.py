"""Schedules in words: when they fire, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from cronsim import CronSim

from app.models import FireOutcome, Schedule, ScheduleFire, ScheduleMode
from app.services.fire_times import CronTiming, Occurrence, OnceTiming, Timing, Weekday
from app.services.schedule_rules import timing_of
from app.web.formatting import count

WEEKDAY_NAMES = {
    Weekday.MON: "Mon",
    Weekday.TUE: "Tue",
    Weekday.WED: "Wed",
    Weekday.THU: "Thu",
    Weekday.FRI: "Fri",
    Weekday.SAT: "Sat",
    Weekday.SUN: "Sun",
}
OUTCOME_WORDS = {
    FireOutcome.LAUNCHED: "Launched",
    FireOutcome.RESUMED: "Went on",
    FireOutcome.QUEUED: "Waits",
    FireOutcome.SKIPPED: "Skipped",
    FireOutcome.MISSED: "Missed",
    FireOutcome.FAILED: "Failed",
}
OUTCOME_CHIPS = {
    FireOutcome.LAUNCHED: "succeeded",
    FireOutcome.RESUMED: "succeeded",
    FireOutcome.QUEUED: "running",
    FireOutcome.SKIPPED: "paused",
    FireOutcome.MISSED: "paused",
    FireOutcome.FAILED: "failed",
}


@dataclass(frozen=True, kw_only=True)
class FireTime:
    """A time as its zone's clock shows it, with the offset; `note` where clocks change."""

    text: str
    offset: str
    note: str


@dataclass(frozen=True, kw_only=True)
class FireLine:
    """What became of one time, as the log shows it."""

    time: FireTime
    chip: str
    word: str
    reason: str
    batch_id: UUID | None


def timing_words(timing: Timing) -> str:
    if isinstance(timing, OnceTiming):
        return f"Once, {timing.at:%a %-d %b %Y at %H:%M}"
    if isinstance(timing, CronTiming):
        return CronSim(timing.expression, datetime(2024, 1, 1)).explain()
    days = set(timing.weekdays)
    if len(days) == len(Weekday):
        words = "Every day"
    elif days == set(Weekday) - {Weekday.SAT, Weekday.SUN}:
        words = "Monday to Friday"
    else:
        words = ", ".join(WEEKDAY_NAMES[day] for day in timing.weekdays)
    return f"{words} at {timing.at:%H:%M}"


def launch_words(schedule: Schedule) -> str:
    if schedule.mode is ScheduleMode.ROTATION:
        return f"The next {count(schedule.rotation_size or 1, 'variant')} each time"
    return "The batch" if schedule.timing["kind"] == "once" else "The whole batch each time"


def schedule_words(schedule: Schedule) -> str:
    return f"{timing_words(timing_of(schedule))}, {schedule.time_zone.replace('_', ' ')}"


def fire_time(occurrence: Occurrence, zone: str) -> FireTime:
    shown = occurrence.at.astimezone(ZoneInfo(zone))
    note = ""
    if shown.replace(tzinfo=None) != occurrence.local:
        note = f"The clocks skip {occurrence.local:%H:%M} that day"
    elif shown.replace(fold=1).utcoffset() != shown.utcoffset():
        note = f"{shown:%H:%M} comes twice that day; this is the first"
    return FireTime(text=f"{shown:%a %-d %b %Y, %H:%M}", offset=_offset(shown), note=note)


def fire_line(fire: ScheduleFire) -> FireLine:
    shown = fire.due_at.astimezone(ZoneInfo(fire.time_zone))
    reason = fire.reason
    if fire.occurrence is None:
        reason = f"Run by hand. {reason}".strip()
    if fire.missed_count:
        reason += f" {count(fire.missed_count, 'later time')} went by as well."
    return FireLine(
        time=FireTime(text=f"{shown:%a %-d %b %Y, %H:%M}", offset=_offset(shown), note=""),
        chip=OUTCOME_CHIPS[fire.outcome],
        word=OUTCOME_WORDS[fire.outcome],
        reason=reason,
        batch_id=fire.batch_id,
    )


def _offset(moment: datetime) -> str:
    # The end of the ISO 8601 form: +02:00.
    return f"UTC{moment.isoformat()[-6:]}" if moment.utcoffset() else "UTC"
