"""Parameters: the kind a name suggests, and values as they are kept."""

from __future__ import annotations

import pytest

from app.errors import InvalidInput
from app.models import ParameterKind
from app.services.parameters import clean_values, guess_kind
from app.services.prompts import MAX_VALUE_LENGTH
from app.services.table_cells import find_problem


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("geography", ParameterKind.GEOGRAPHY),
        ("City", ParameterKind.GEOGRAPHY),
        ("target_market", ParameterKind.GEOGRAPHY),
        ("audience_segment", ParameterKind.AUDIENCE),
        ("background", ParameterKind.BACKDROP),
        ("scene", ParameterKind.BACKDROP),
        ("market_headline", ParameterKind.TEXT),
        ("colour", ParameterKind.CHOICE),
        # Setting kinds change the render itself, so a name alone never chooses them.
        ("size", ParameterKind.CHOICE),
        ("capacity", ParameterKind.CHOICE),
    ],
)
def test_a_name_suggests_its_kind(name: str, kind: ParameterKind) -> None:
    assert guess_kind(name) is kind


def test_values_lose_blanks_and_empty_lines_but_keep_repeats() -> None:
    assert clean_values("city", [" Paris ", "", "Rome", "Paris"]) == ["Paris", "Rome", "Paris"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [("x" * 2_001, "this value has 2,001 characters; 2,000 are"), ("a\x00b", r"U\+0000")],
)
def test_a_bad_value_is_named(value: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=rf"city, value 2: .*{problem}") as caught:
        clean_values("city", ["ok", value])
    assert caught.value.field == "city"


def test_too_many_values_are_refused() -> None:
    with pytest.raises(InvalidInput, match="10,001 values"):
        clean_values("city", map(str, range(10_001)))


def test_a_form_and_a_table_take_values_of_the_same_length() -> None:
    for length in (MAX_VALUE_LENGTH, MAX_VALUE_LENGTH + 1):
        value = "x" * length
        problem = find_problem(value)
        assert (problem is None) == (length == MAX_VALUE_LENGTH)
        if problem is None:
            assert clean_values("city", [value]) == [value]
        else:
            with pytest.raises(InvalidInput, match=problem[1]):
                clean_values("city", [value])
