"""Parameters of a campaign: their kinds, guessed from their names, and their values, cleaned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from app.errors import InvalidInput
from app.models import ParameterKind
from app.services.prompts import CONTROL_CHARACTER, find_excess

MAX_VALUES: Final = 10_000

# Kinds that change the shape of a render are never guessed: a prompt may well name a shoe size.
_HINTS: Final = (
    (
        ParameterKind.GEOGRAPHY,
        ("geo", "geography", "city", "country", "market", "place", "region", "location", "state"),
    ),
    (
        ParameterKind.AUDIENCE,
        ("audience", "persona", "segment", "target", "people", "customer", "demographic"),
    ),
    (
        ParameterKind.BACKDROP,
        ("backdrop", "background", "scene", "scenery", "setting", "landscape"),
    ),
    (ParameterKind.TEXT, ("text", "headline", "slogan", "copy", "cta", "tagline", "caption")),
)
_KINDS: Final = {word: kind for kind, words in _HINTS for word in words}


@dataclass(frozen=True, kw_only=True)
class ParameterInput:
    """A parameter as a person sets it."""

    name: str
    kind: ParameterKind
    values: Sequence[str] = ()


def guess_kind(name: str) -> ParameterKind:
    """The kind that the words of a name suggest; a plain choice otherwise."""
    # The last word carries the meaning: a “market_headline” is a headline.
    for word in reversed(name.lower().split("_")):
        if word in _KINDS:
            return _KINDS[word]
    return ParameterKind.CHOICE


def clean_values(name: str, values: Iterable[str]) -> list[str]:
    """Values without blanks around them and empty ones; InvalidInput names a bad one.

    Repeats stay: line by line, the same city may well stand beside two audiences.
    """
    cleaned = [value.strip() for value in values if value.strip()]
    if len(cleaned) > MAX_VALUES:
        raise InvalidInput(
            f"{name} has {len(cleaned):,} values; {MAX_VALUES:,} are allowed. Upload a table"
            " instead.",
            field=name,
        )
    for position, value in enumerate(cleaned, 1):
        if excess := find_excess(value):
            raise InvalidInput(f"{name}, value {position}: {excess}.", field=name)
        if found := CONTROL_CHARACTER.search(value):
            raise InvalidInput(
                f"{name}, value {position}: there is an invisible control character"
                f" (U+{ord(found[0]):04X}); delete it.",
                field=name,
            )
    return cleaned
