"""What a model with few words knows: offered on the form, and compared with values at the quote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from sqlalchemy.orm import Session

from app.db import config_of
from app.models import Batch, ParameterKind, Upload
from app.services.specs import BatchSpec
from app.services.upload_rows import read_rows
from app.storage import storage_from_url
from engine.registry import ModelSpec, get_model

# Of each placeholder; the rest is counted.
MAX_SHOWN: Final = 8
TITLES: Final = MappingProxyType(
    {
        "product": "Products",
        "colour": "Colours",
        "backdrop": "Backdrops",
        "time": "Times",
        "geography": "Places",
        "audience": "Audiences",
        "motion": "Motion",
    }
)
_SPELLINGS: Final = MappingProxyType({"color": "colour", "time_of_day": "time"})
_BY_KIND: Final = MappingProxyType(
    {
        ParameterKind.GEOGRAPHY: "geography",
        ParameterKind.AUDIENCE: "audience",
        ParameterKind.BACKDROP: "backdrop",
    }
)


@dataclass(frozen=True, kw_only=True)
class UnknownValues:
    """Values of a placeholder without any word that the model knows, and what it knows instead."""

    name: str
    shown: tuple[str, ...]
    more: int
    known: tuple[str, ...]


def known_words(spec: ModelSpec) -> list[tuple[str, tuple[str, ...]]]:
    """Titles and words to put into a prompt; empty for a model that takes any words."""
    return [(TITLES[name], _words(spec, name)) for name in spec.vocabulary]


def preset_values(model_id: str, name: str, kind: str) -> tuple[str, ...]:
    """Values that this model shows well for a placeholder, in words to put into a prompt.

    Models without a vocabulary of their own take any words, so there is nothing to offer.
    """
    spec = get_model(model_id)
    attribute = _SPELLINGS.get(name, name)
    if attribute not in spec.vocabulary:
        attribute = _BY_KIND.get(ParameterKind(kind), "")
    return _words(spec, attribute) if attribute in spec.vocabulary else ()


def find_unknown(
    model_id: str, kinds: Mapping[str, str], values: Mapping[str, Iterable[str]]
) -> list[UnknownValues]:
    """Values, by placeholder, in which the model knows no word; `kinds` are by name, too."""
    pattern = _pattern(model_id)
    if pattern is None:
        return []
    found: list[UnknownValues] = []
    for name, given in values.items():
        unknown = [value for value in dict.fromkeys(given) if value and not pattern.search(value)]
        if unknown:
            found.append(
                UnknownValues(
                    name=name,
                    shown=tuple(unknown[:MAX_SHOWN]),
                    more=max(0, len(unknown) - MAX_SHOWN),
                    known=preset_values(model_id, name, kinds[name]),
                )
            )
    return found


def unknown_values(session: Session, batch: Batch, spec: BatchSpec) -> list[UnknownValues]:
    """What the batch's model does not know of its values, typed ones and those of a table."""
    model_id = spec.settings.model_id
    if not get_model(model_id).vocabulary:
        return []
    values: dict[str, Iterable[str]] = dict(spec.typed_values)
    if batch.upload_id and spec.columns:
        upload = session.get_one(Upload, batch.upload_id)
        read: dict[str, dict[str, None]] = {name: {} for name in spec.columns}
        for row in read_rows(storage_from_url(config_of(session)), upload):
            for name, column in spec.columns.items():
                read[name].setdefault(row.cells[column])
        values |= read
    return find_unknown(model_id, {item.name: item.kind for item in spec.parameters}, values)


@lru_cache(maxsize=16)
def _pattern(model_id: str) -> re.Pattern[str] | None:
    """Finds any word that the model knows; None for a model that takes any words."""
    vocabulary = get_model(model_id).vocabulary
    words = {word for values in vocabulary.values() for named in values.values() for word in named}
    if not words:
        return None
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b", re.IGNORECASE)


def _words(spec: ModelSpec, attribute: str) -> tuple[str, ...]:
    return tuple(_as_title(attribute, words[0]) for words in spec.vocabulary[attribute].values())


def _as_title(attribute: str, word: str) -> str:
    if attribute != "geography":
        return word
    return " ".join(part if part == "de" else part.capitalize() for part in word.split())
