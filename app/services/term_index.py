"""Finds blocked terms in a text as whole words, whatever their case, accents and spacing; pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# Diacritics of Latin, Greek and Cyrillic; the vowel signs of other scripts are letters to a reader.
_ACCENTS: Final = re.compile(r"[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
# Soft hyphens, joiners and marks of direction, which are not seen.
_INVISIBLE: Final = re.compile(r"[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
# Letters that look accented but that Unicode does not take apart.
_PLAIN: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe"}
)
# Written without spaces, or (Hangul) with particles joined to the word: a term may stand anywhere.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u309f"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_KATAKANA: Final = "\u30a0-\u30ff"
_WORD: Final = re.compile(rf"[{_KATAKANA}]+|[{_UNSPACED}]|[^\W_{_KATAKANA}{_UNSPACED}]+")
_UNSPACED_CHARACTER: Final = re.compile(f"[{_UNSPACED}]")
_KATAKANA_CHARACTER: Final = re.compile(f"[{_KATAKANA}]")


@dataclass(frozen=True, kw_only=True)
class Term:
    """What must not be rendered, as a person wrote it, and why (or empty)."""

    text: str
    reason: str = ""

    def __str__(self) -> str:
        return f"“{self.text}”" + (f" ({self.reason})" if self.reason else "")


class _Script(StrEnum):
    NONE = "none"  # no letter or digit: a word ends here
    UNSPACED = "unspaced"
    KATAKANA = "katakana"
    SPACED = "spaced"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    term: Term
    key: str
    # Where the word that the entry is found by begins in the key.
    offset: int


class TermIndex:
    """Blocked terms by their first word, so that a text is read once however many there are."""

    def __init__(self, terms: Iterable[Term]) -> None:
        """ValueError for a term without any letter or digit."""
        self._by_word: dict[str, list[_Entry]] = {}
        for term in terms:
            key = fold(term.text)
            word = _WORD.search(key)
            if word is None:
                raise ValueError(f"{term.text!r} has no letter or digit")
            entry = _Entry(term=term, key=key, offset=word.start())
            self._by_word.setdefault(word[0], []).append(entry)

    def __bool__(self) -> bool:
        return bool(self._by_word)

    def find(self, text: str) -> list[Term]:
        """The terms that stand in a text, each once, in the order of the text."""
        if not self._by_word:
            return []
        folded = fold(text)
        found: dict[Term, None] = {}
        for word in _WORD.finditer(folded):
            for entry in self._by_word.get(word[0], ()):
                if _stands_at(folded, entry.key, word.start() - entry.offset):
                    found[entry.term] = None
        return list(found)


def fold(text: str) -> str:
    """What two spellings of the same term have in common: no case, accents, or kinds of blank."""
    if text.isascii():
        return " ".join(text.lower().split())
    text = unicodedata.normalize("NFKC", text).casefold()
    text = _ACCENTS.sub("", unicodedata.normalize("NFD", _INVISIBLE.sub("", text)))
    # Folding case may take letters apart that the first normalisation had put together.
    text = unicodedata.normalize("NFKC", text.translate(_PLAIN))
    return " ".join(text.split())


def has_word(text: str) -> bool:
    """Whether there is a letter or digit that a term could be found by."""
    return _WORD.search(fold(text)) is not None


def _stands_at(text: str, key: str, start: int) -> bool:
    if start < 0 or not text.startswith(key, start):
        return False
    end = start + len(key)
    is_cut_before = start > 0 and _is_joined(text[start - 1], key[0])
    is_cut_after = end < len(text) and _is_joined(key[-1], text[end])
    return not (is_cut_before or is_cut_after)


def _is_joined(left: str, right: str) -> bool:
    """Whether two neighbours are of one word."""
    script = _script_of(left)
    return script in (_Script.SPACED, _Script.KATAKANA) and script is _script_of(right)


def _script_of(character: str) -> _Script:
    if _UNSPACED_CHARACTER.match(character):
        return _Script.UNSPACED
    if _KATAKANA_CHARACTER.match(character):
        return _Script.KATAKANA
    # Vowel signs (M…) are of the word that they stand in.
    if character.isalnum() or unicodedata.category(character).startswith("M"):
        return _Script.SPACED
    return _Script.NONE
