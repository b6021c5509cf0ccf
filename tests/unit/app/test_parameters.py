"""Parameters: the kind a name suggests, and values as they are kept."""

from __future__ import annotations

import pytest

from app.errors import InvalidInput
from app.models import ParameterKind
from app.services.parameters import clean_values, guess_kind


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
    ("value", "problem"), [("x" * 501, "501 characters"), ("a\x00b", r"U\+0000")]
)
def test_a_bad_value_is_named(value: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=rf"Value 2 of city .*{problem}") as caught:
        clean_values("city", ["ok", value])
    assert caught.value.field == "city"


def test_too_many_values_are_refused() -> None:
    with pytest.raises(InvalidInput, match="10,001 values"):
        clean_values("city", map(str, range(10_001)))
