"""A prompt cut into plain text and the slots that a page colours by parameter kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from app.models import ParameterKind
from app.services.prompts import ParsedPrompt


@dataclass(frozen=True, kw_only=True)
class PromptPart:
    """A piece of a prompt; a piece with a kind is a slot, missing ones have no value yet."""

    text: str
    kind: str | None = None
    name: str = ""
    is_missing: bool = False


@dataclass(frozen=True, kw_only=True)
class Slot:
    name: str
    kind: str
    start: int
    end: int
    is_missing: bool = False


def cut(text: str, slots: Iterable[Slot]) -> list[PromptPart]:
    """Parts of `text` in order; slots are spans in characters and do not overlap."""
    parts: list[PromptPart] = []
    position = 0
    for slot in sorted(slots, key=lambda item: item.start):
        if slot.start > position:
            parts.append(PromptPart(text=text[position : slot.start]))
        if slot.end > slot.start:
            parts.append(
                PromptPart(
                    text=text[slot.start : slot.end],
                    kind=slot.kind,
                    name=slot.name,
                    is_missing=slot.is_missing,
                )
            )
        position = slot.end
    if position < len(text):
        parts.append(PromptPart(text=text[position:]))
    return parts


def from_stored(text: str, slots: Iterable[Mapping[str, Any]]) -> list[PromptPart]:
    """Parts of a variant's prompt and its stored slots (`PromptSlot.to_dict`)."""
    return cut(
        text,
        (
            Slot(name=slot["name"], kind=slot["kind"], start=slot["span"][0], end=slot["span"][1])
            for slot in slots
        ),
    )


def from_values(
    parsed: ParsedPrompt, values: Mapping[str, str], kinds: Mapping[str, str]
) -> list[PromptPart]:
    """Parts of the prompt rendered with `values`; a placeholder without one shows its name."""
    rendered = parsed.render(
        {item.name: values.get(item.name) or item.name for item in parsed.placeholders},
        is_sketch=True,
    )
    return cut(
        rendered.text,
        (
            Slot(
                name=name,
                kind=kinds.get(name, ParameterKind.TEXT),
                start=start,
                end=end,
                is_missing=not values.get(name),
            )
            for name, _, start, end in rendered.spans
        ),
    )


def from_template(parsed: ParsedPrompt, kinds: Mapping[str, str]) -> list[PromptPart]:
    """Parts of a prompt template: each placeholder stands as its name."""
    names = {item.name: item.name for item in parsed.placeholders}
    return from_values(parsed, names, kinds)
