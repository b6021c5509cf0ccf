"""One cell of a table: what is mended in it, what is wrong with it, how it leaves in a CSV."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from app.services.prompts import CONTROL_CHARACTER, MAX_VALUE_LENGTH, find_excess

# Trimmed from both ends: blanks, no-break and zero-width ones, a byte order mark in the middle.
BLANKS: Final = " \t\r\n\f\v\u00a0\u2007\u202f\u2009\u3000\u200b\u200c\u200d\u2060\ufeff"
# The joiners U+200C and U+200D stay inside a word: emoji and several scripts need them.
_INVISIBLE: Final = str.maketrans(
    dict.fromkeys("\u00a0\u2007\u202f\u2009", " ") | dict.fromkeys("\u200b\u2060\ufeff", "")
)
# What spreadsheets make of a number of more than 15 digits: 9.45E+12, or zeros at the end.
_EXPONENT = re.compile(r"-?\d(?:[.,]\d+)?E\+\d{2,}", re.IGNORECASE)
_KEPT_DIGITS: Final = 15
_NUMBER = re.compile(r"[+-]?(?:\d+(?:[.,]\d+)*|[.,]\d+)(?:E[+-]?\d+)?%?", re.IGNORECASE)
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def mend_cell(cell: str) -> tuple[str, list[tuple[str, str]]]:
    """The cell without faults that can be mended safely, and (code, why) of each repair."""
    repairs: list[tuple[str, str]] = []
    value = cell.strip(BLANKS)
    if len(value) != len(cell):
        repairs.append(("trimmed", "blanks around a value were removed"))
    if not value.isascii():
        composed = unicodedata.normalize("NFC", value)
        if composed != value:
            message = "letters and their accents were joined, as Unicode’s NFC has them"
            repairs.append(("composed", message))
        value = composed.translate(_INVISIBLE)
        if value != composed:
            message = "no-break spaces became plain ones, zero-width ones were removed"
            repairs.append(("invisible_space", message))
    if value.startswith("'") and value[1:].startswith(_FORMULA_STARTS):
        value = value[1:]
        repairs.append(("quote_mark", "the quote mark in front of a would-be formula was removed"))
    if "\r" in value:
        value = value.replace("\r\n", "\n").replace("\r", "\n")
        repairs.append(("line_end", "a line break inside a cell was written the usual way"))
    return value, repairs


def is_clean(cells: list[str]) -> bool:
    """True for cells that surely need neither mending nor a closer look; quick."""
    text = "".join(cells)
    if not (text.isascii() and text.isprintable()) or len(text) > MAX_VALUE_LENGTH:
        return False
    return not any(cell and (cell[0] in " '" or cell[-1] == " ") for cell in cells)


def find_problem(value: str) -> tuple[str, str] | None:
    """Code and message of what makes a mended value unusable."""
    if excess := find_excess(value):
        return "long_value", excess
    if "\ufffd" in value:
        message = "a letter could not be read (\ufffd); correct it and save the file as “CSV UTF-8”"
        return "damaged_text", message
    if not value.isprintable() and (match := CONTROL_CHARACTER.search(value)):
        if match[0] == "\0":
            return "nul_byte", "this value holds a NUL byte; export the file again"
        code = f"U+{ord(match[0]):04X}"
        return "control_character", f"there is an invisible control character ({code}); delete it"
    return None


def has_lost_digits(value: str) -> bool:
    """True for a long number as a spreadsheet writes it after it dropped its last digits."""
    if len(value) > _KEPT_DIGITS and value.isdigit():
        return not value[_KEPT_DIGITS:].strip("0")
    return "+" in value and _EXPONENT.fullmatch(value) is not None


LOST_DIGITS: Final = (
    "the spreadsheet kept only the first digits of this number ({value}); format the column as"
    " text, enter it anew, and export again"
)


def neutralise(value: str) -> str:
    """The value as a spreadsheet shows it and never runs it; numbers stay as they are.

    A quote mark goes in front of what would be a formula (OWASP, CSV Injection).
    """
    if value.startswith(_FORMULA_STARTS) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value
