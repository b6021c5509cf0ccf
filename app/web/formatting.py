"""How figures read on a page: money, durations, dates, sizes, counts."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from flask import Flask

MICROS = Decimal(1_000_000)
SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹"}


def money(micros: int, currency: str = "USD") -> str:
    """An amount in micros as people write it; below one unit more digits count."""
    amount = Decimal(micros) / MICROS
    decimals = 2
    if amount and abs(amount) < 1:
        decimals = max(3, 1 - amount.adjusted())
    sign = "−" if amount < 0 else ""
    text = f"{abs(amount):,.{decimals}f}"
    symbol = SYMBOLS.get(currency)
    return f"{sign}{symbol}{text}" if symbol else f"{sign}{currency} {text}"


def duration(seconds: float | None) -> str:
    """Seconds in the two units that matter: “8 s”, “2 min 10 s”, “40 min”, “1 h 20 min”."""
    if seconds is None:
        return "–"
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    if whole < 595:
        minutes, tens = divmod(round(whole / 10), 6)
        return f"{minutes} min {tens * 10} s" if tens else f"{minutes} min"
    minutes = round(whole / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{round(hours / 24)} days"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def ago(moment: datetime | None) -> str:
    """How long ago something happened, in words."""
    if moment is None:
        return "never"
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if seconds < 45:
        return "just now"
    if seconds < 90 * 60:
        return f"{max(1, round(seconds / 60))} min ago"
    if seconds < 48 * 3600:
        return f"{round(seconds / 3600)} h ago"
    return moment.strftime("%-d %b %Y")


def size(size_bytes: int) -> str:
    """Bytes as kB or MB, decimal."""
    if size_bytes < 1_000_000:
        return f"{max(1, round(size_bytes / 1000)):,} kB"
    return f"{size_bytes / 1_000_000:,.1f} MB"


def count(number: int, one: str, many: str | None = None) -> str:
    """A count with its noun: “1 variant”, “1,200 variants”."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(part: float, whole: float) -> str:
    """A share in whole per cent; less than one is not rounded to nothing."""
    if whole <= 0 or part <= 0:
        return "0%"
    share = 100 * part / whole
    if share < 1:
        return "<1%"
    # Only the whole is 100 %: 999 of 1,000 must not read as finished.
    return f"{100 if part >= whole else min(99, round(share))}%"


def register(app: Flask) -> None:
    """Make the functions filters of the page templates, under their own names."""
    for function in (money, duration, ago, size, count, percent):
        app.add_template_filter(function)
