"""Clocks that change: zones with their days, and a walk through every minute of them."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

# Days on which clocks change: by an hour, by half of one, at midnight, and by a whole day.
CHANGES = {
    "Europe/Berlin": (date(2026, 3, 29), date(2026, 10, 25)),
    "America/New_York": (date(2026, 3, 8), date(2026, 11, 1)),
    "America/Santiago": (date(2026, 9, 6), date(2026, 4, 5)),
    "Australia/Lord_Howe": (date(2026, 10, 4), date(2026, 4, 5)),
    "Africa/Cairo": (date(2026, 4, 24), date(2026, 10, 30)),
    "Pacific/Auckland": (date(2026, 9, 27), date(2026, 4, 5)),
    "Pacific/Apia": (date(2011, 12, 30), date(2011, 4, 2)),
    "Asia/Kolkata": (date(2026, 3, 29), date(2026, 10, 25)),
    "UTC": (date(2026, 3, 29), date(2026, 10, 25)),
}
MINUTE = timedelta(minutes=1)
# A time on the clock and the instant at which it is shown first.
Reached = tuple[datetime, datetime]


@cache
def walk_minutes(name: str, noon: datetime) -> list[Reached]:
    """Every minute of the clock that is reached for the first time, and the instant of that."""
    zone, at = ZoneInfo(name), noon - timedelta(days=4)
    shown, reached = at.astimezone(zone).replace(tzinfo=None), []
    while at < noon + timedelta(days=4):
        at += MINUTE
        now = at.astimezone(zone).replace(tzinfo=None)
        while shown < now:
            shown += MINUTE
            reached.append((shown, at))
    return reached
