"""File names of exported artifacts: a pattern with placeholders, made safe and unique; pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from typing import Final

from app.errors import InvalidInput

DEFAULT_PATTERN: Final = "{campaign}_{number}_{size}"
MAX_PATTERN_LENGTH: Final = 200
# Without the extension; most file systems take 255 bytes.
MAX_NAME_BYTES: Final = 150
# What every variant has, besides its parameters and the columns of its row.
BUILT_IN: Final = ("campaign", "batch", "number", "row_id", "size", "seed", "review")

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SEPARATORS = re.compile(r"([-_.])[-_.]+")
# Names that Windows, the strictest of the systems that unpack the file, keeps for devices.
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)


def check_pattern(pattern: str, known: Collection[str]) -> str:
    """The pattern without blanks around it; InvalidInput names what cannot be used in it."""
    pattern = pattern.strip()
    if not pattern or len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidInput(
            f"Give a pattern of up to {MAX_PATTERN_LENGTH} characters for the names.",
            field="pattern",
        )
    unknown = [name for name in _PLACEHOLDER.findall(pattern) if name.strip() not in known]
    if unknown:
        raise InvalidInput(
            f"There is no {{{unknown[0]}}} to name files by. These can be used: "
            f"{', '.join(f'{{{name}}}' for name in known)}.",
            field="pattern",
        )
    if "{" in (left := _PLACEHOLDER.sub("", pattern)) or "}" in left:
        raise InvalidInput(
            "A brace in the pattern is not closed; write {geography}, for instance.",
            field="pattern",
        )
    return pattern


def describe_changes(pattern: str) -> list[str]:
    """What of the pattern's own text cannot stand in a name, and what becomes of it; in words."""
    # Values are made safe as well, but nobody asks for a folder by them.
    text = unicodedata.normalize("NFC", _PLACEHOLDER.sub("x", pattern)).strip()
    refused = dict.fromkeys(char for char in text if not _is_safe(char) and not char.isspace())
    folders = [char for char in refused if char in "/\\"]
    others = " ".join(char for char in refused if char not in "/\\{}")
    changes = [f"Folders are not kept: “{folders[0]}” becomes “-”."] if folders else []
    if others:
        changes.append(f"Not every system takes {others} in a name: written as “-”.")
    if any(char.isspace() for char in text):
        changes.append("Blanks are written as “-”.")
    if _SEPARATORS.search(text) or text.strip("-_.") != text:
        changes.append("Of several of - _ . in a row one is kept, none at the ends.")
    return changes


class FileNamer:
    """Makes names from one pattern; no two are the same, also where case is not told apart."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._taken: set[str] = set()

    def name(self, values: Mapping[str, str], *, extension: str) -> str:
        """A file name for these values; a value that is not there leaves nothing behind."""
        stem = self._stem(values)
        name, number = f"{stem}.{extension}", 2
        while name.casefold() in self._taken:
            name, number = f"{stem}-{number}.{extension}", number + 1
        self._taken.add(name.casefold())
        return name

    def _stem(self, values: Mapping[str, str]) -> str:
        text = _PLACEHOLDER.sub(
            lambda found: safe_part(values.get(found[1].strip(), "")), self._pattern
        )
        return safe_part(text) or "variant"


def safe_part(text: str) -> str:
    """The text as a part of a file name: letters of any script, digits, and - _ . +"""
    text = unicodedata.normalize("NFC", text)
    kept = "-".join("".join(char if _is_safe(char) else " " for char in text).split())
    # What an empty value leaves between two separators goes.
    kept = _SEPARATORS.sub(r"\1", kept).strip("-_.")
    # Cut between letters, not inside one.
    kept = kept.encode()[:MAX_NAME_BYTES].decode(errors="ignore").rstrip("-_.")
    return f"{kept}_" if _RESERVED.fullmatch(kept) else kept


def _is_safe(char: str) -> bool:
    # Vowel signs of many scripts are marks, not letters.
    return char.isalnum() or char in "-_.+" or unicodedata.category(char).startswith("M")
