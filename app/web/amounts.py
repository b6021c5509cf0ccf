"""Amounts of money as people type them in forms."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from app.errors import InvalidInput

# 12, 12.50 or 1,200.5; more decimals than a micro has are no amount.
_AMOUNT: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d{1,6})?|\d{1,9}(?:\.\d{1,6})?")


def write_amount(micros: int) -> str:
    """An amount as `read_amount` takes it, without zeros that say nothing."""
    whole, part = divmod(micros, 1_000_000)
    decimals = f"{part:06}".rstrip("0")
    return f"{whole}.{decimals.ljust(2, '0')}" if decimals else str(whole)


def read_amount(text: str, *, field: str, noun: str) -> int | None:
    """An amount in micros, None for an empty field; InvalidInput for what is no amount.

    `noun` is what the amount is called on the page.
    """
    written = text.strip()
    if not written:
        return None
    if not _AMOUNT.fullmatch(written):
        raise InvalidInput(
            f"{written[:40]!r} is no amount. Write {noun} as a number, such as 12.50, or"
            " leave it empty.",
            field=field,
        )
    return int(Decimal(written.replace(",", "")) * 1_000_000)
