"""Prompts cut into plain text and coloured slots."""

from __future__ import annotations

from app.services.prompts import parse_prompt
from app.web.prompt_parts import PromptPart, Slot, cut, from_stored, from_template, from_values

KINDS = {"backdrop": "backdrop", "city": "geography"}


def texts(parts: list[PromptPart]) -> list[tuple[str, str | None]]:
    return [(part.text, part.kind) for part in parts]


def test_parts_join_to_the_prompt_again() -> None:
    text = "a shoe on a beach, in Paris"
    parts = cut(
        text,
        [
            Slot(name="city", kind="geography", start=22, end=27),
            Slot(name="backdrop", kind="backdrop", start=10, end=17),
        ],
    )
    assert "".join(part.text for part in parts) == text
    assert texts(parts)[1] == ("a beach", "backdrop")
    assert texts(parts)[-1] == ("Paris", "geography")


def test_stored_slots_colour_their_spans() -> None:
    slots = [{"name": "city", "kind": "geography", "value": "Oslo", "span": [3, 7]}]
    assert texts(from_stored("in Oslo.", slots)) == [
        ("in ", None),
        ("Oslo", "geography"),
        (".", None),
    ]


def test_a_placeholder_without_a_value_shows_its_name_and_says_so() -> None:
    parsed = parse_prompt("a shoe on {{ backdrop }} in {{ city }}")
    parts = from_values(parsed, {"city": "Paris"}, KINDS)
    missing = [part for part in parts if part.is_missing]
    assert [part.text for part in missing] == ["backdrop"]
    assert ("Paris", "geography") in texts(parts)


def test_a_template_shows_its_placeholders_by_name() -> None:
    parsed = parse_prompt("a shoe on {{ backdrop }}")
    assert texts(from_template(parsed, KINDS)) == [("a shoe on ", None), ("backdrop", "backdrop")]
