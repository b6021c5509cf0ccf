"""Money, durations and shares as pages show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.web.formatting import ago, count, duration, money, percent, size


@pytest.mark.parametrize(
    ("micros", "currency", "text"),
    [
        (0, "USD", "$0.00"),
        (1_000_000, "USD", "$1.00"),
        (12_345_678_900, "EUR", "€12,345.68"),
        (144_000, "USD", "$0.144"),
        (4_800, "USD", "$0.0048"),
        (12, "USD", "$0.000012"),
        (-48_000, "USD", "−$0.048"),
        (1_500_000, "CHF", "CHF 1.50"),
    ],
)
def test_money_keeps_the_digits_that_matter(micros: int, currency: str, text: str) -> None:
    assert money(micros, currency) == text


def test_amounts_of_one_ledger_add_up_as_they_are_shown() -> None:
    shown = [money(value) for value in (144_000, -48_000, 96_000)]
    assert shown == ["$0.144", "−$0.048", "$0.096"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (89, "89 s"),
        (91, "1 min 30 s"),
        (178, "3 min"),
        (594, "9 min 50 s"),
        (596, "10 min"),
        (3_600, "60 min"),
        (5_400, "1 h 30 min"),
        (7_200, "2 h"),
        (180_000, "2 days"),
    ],
)
def test_durations_use_the_two_units_that_matter(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_999_of_1000_does_not_read_as_finished() -> None:
    assert percent(999.9, 1000) == "99%"
    assert percent(1000, 1000) == "100%"


def test_one_of_a_thousand_does_not_read_as_nothing() -> None:
    assert percent(1, 1000) == "<1%"
    assert percent(0, 1000) == "0%"
    assert percent(0, 0) == "0%"


def test_ago_gets_coarser_with_distance() -> None:
    now = datetime.now(UTC)
    assert ago(now - timedelta(seconds=5)) == "just now"
    assert ago(now - timedelta(minutes=4)) == "4 min ago"
    assert ago(now - timedelta(hours=4, minutes=5)) == "4 h ago"
    assert ago(datetime(2026, 3, 4, tzinfo=UTC)) == "4 Mar 2026"
    assert ago(None) == "never"


def test_counts_agree_with_their_noun() -> None:
    assert count(1, "variant") == "1 variant"
    assert count(1200, "variant") == "1,200 variants"
    assert count(2, "batch", "batches") == "2 batches"
    assert size(2_311) == "2 kB"
    assert size(12_600_000) == "12.6 MB"
