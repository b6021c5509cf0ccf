"""Amounts of money: read as people write them, written as they are read."""

from __future__ import annotations

import pytest

from app.errors import InvalidInput
from app.web.amounts import read_amount, write_amount


@pytest.mark.parametrize(
    ("text", "micros"),
    [("", None), (" ", None), ("12", 12_000_000), ("0.000001", 1), ("1,200.50", 1_200_500_000)],
)
def test_an_amount_is_read_as_people_write_it(text: str, micros: int | None) -> None:
    assert read_amount(text, field="budget", noun="the budget") == micros


@pytest.mark.parametrize(
    ("micros", "text"),
    [(12_000_000, "12"), (12_500_000, "12.50"), (1, "0.000001"), (1_234_567_000, "1234.567")],
)
def test_an_amount_is_written_as_it_is_read(micros: int, text: str) -> None:
    assert write_amount(micros) == text
    assert read_amount(text, field="budget", noun="the budget") == micros


@pytest.mark.parametrize("text", ["a lot", "-3", "1,20", "1e9", "0.0000001", "12,5"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"is no amount\. Write the budget") as caught:
        read_amount(text, field="budget", noun="the budget")
    assert caught.value.field == "budget"
