"""Names of exported files: from a pattern, safe on every system, never twice the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidInput
from app.services.export_names import FileNamer, check_pattern, describe_changes, safe_part

KNOWN = ["campaign", "number", "geography", "row_id"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{campaign}_{city}", "There is no {city}"),
        ("{campaign}_{}", "There is no {}"),
        ("{campaign", "brace"),
        ("  ", "Give a pattern"),
        ("x" * 201, "Give a pattern"),
    ],
)
def test_a_pattern_that_cannot_be_filled_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_pattern(pattern, KNOWN)
    assert message in caught.value.message
    assert caught.value.field == "pattern"


def test_names_are_filled_and_what_is_empty_leaves_no_gap() -> None:
    namer = FileNamer(check_pattern(" {campaign}_{row_id}_{ geography } ", KNOWN))
    values = {"campaign": "Spring: cities", "row_id": "", "geography": "São Paulo"}
    assert namer.name(values, extension="mp4") == "Spring-cities_São-Paulo.mp4"


def test_the_second_of_two_equal_names_is_numbered_whatever_its_case() -> None:
    namer = FileNamer("{geography}")
    names = [
        namer.name({"geography": text}, extension="mp4") for text in ("Paris", "PARIS", "paris-2")
    ]
    assert names == ["Paris.mp4", "PARIS-2.mp4", "paris-2-2.mp4"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("C:\\windows", "C-windows"),
        ("NUL", "NUL_"),
        ("मुंबई", "मुंबई"),
        ("a\u202eb\x00c", "a-b-c"),
        ("...", ""),
    ],
)
def test_parts_are_made_safe(text: str, expected: str) -> None:
    assert safe_part(text) == expected


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("{campaign}_{number}", []),
        ("{campaign}/{number}", ["Folders are not kept: “/” becomes “-”."]),
        ("..\\{number}", ["Folders are not kept: “\\” becomes “-”.", "one is kept"]),
        ("{number}..x", ["Of several of - _ . in a row one is kept"]),
        ("what? {number}", ["takes ? in a name", "Blanks are written"]),
        ("{geography", []),
    ],
)
def test_what_becomes_of_a_pattern_is_said(pattern: str, parts: list[str]) -> None:
    changes = describe_changes(pattern)
    assert len(changes) == len(parts)
    for part, change in zip(parts, changes, strict=True):
        assert part in change


@given(st.lists(st.text(max_size=300), min_size=1, max_size=8))
def test_no_text_leads_out_of_the_folder_or_to_a_name_twice(texts: list[str]) -> None:
    namer = FileNamer("{geography}")
    names = [namer.name({"geography": text}, extension="mp4") for text in texts]
    assert len({name.casefold() for name in names}) == len(names)
    for name in names:
        assert not set(name) & set('/\\:*?"<>|\0')
        assert name[0] != "."
        assert len(name.encode()) <= 255
