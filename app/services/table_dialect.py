"""How the bytes of a table are to be read: encoding, delimiter, and a `sep=` line."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final

import clevercsv
from charset_normalizer import from_bytes

from app.services.table_findings import fail

DELIMITERS: Final = (",", ";", "\t", "|")
_HEAD_BYTES: Final = 256 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_SAMPLE_ROWS: Final = 200
# Longest marks first: the mark of UTF-16 begins that of UTF-32.
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OTHER_FORMATS: Final = (
    (b"PK\x03\x04", "an Excel or OpenDocument workbook"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook"),
    (b"%PDF", "a PDF file"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"\x1f\x8b", "a compressed file"),
)
# What spreadsheets write, most common first. Encodings for single languages are told apart
# by letter frequencies, which needs some text.
_LEGACY: Final = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "shift_jis", "gb18030", "big5")
_SEPARATOR_LINE = re.compile(r"\ufeff?\"?sep=(.)\"?[\r\n]", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a file is to be read; `is_guess` says that its encoding had to be guessed."""

    encoding: str
    delimiter: str
    has_separator_line: bool = False
    is_guess: bool = False

    def to_dict(self) -> dict[str, str]:
        return {
            "encoding": self.encoding,
            "delimiter": self.delimiter,
            "has_separator_line": "yes" if self.has_separator_line else "",
            "is_guess": "yes" if self.is_guess else "",
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, str]) -> Dialect:
        """Read what `to_dict` wrote."""
        return cls(
            encoding=data["encoding"],
            delimiter=data["delimiter"],
            has_separator_line=bool(data["has_separator_line"]),
            is_guess=bool(data["is_guess"]),
        )


def normalise_name(name: str) -> str:
    """A column's name as it is compared: case, spaces, hyphens and underscores do not count."""
    return re.sub(r"[\s_\-\u200b\ufeff]+", "_", name.strip().casefold()).strip("_")


def detect_dialect(stream: BinaryIO, *, expected: Collection[str] = ()) -> Dialect:
    """Find out how to read a seekable stream; TableError when it is no table of text.

    `expected` are names that the header should have: they settle which delimiter is meant.
    """
    stream.seek(0)
    head = stream.read(_HEAD_BYTES)
    _refuse_other_formats(head)
    encoding, is_guess = _detect_encoding(stream, head)
    sample = codecs.getincrementaldecoder(encoding)("replace").decode(head)
    if not sample.strip("\ufeff\u200b \t\r\n"):
        raise fail("empty", "the file is empty; it needs a header line and a row for each variant")
    separator = _SEPARATOR_LINE.match(sample)
    if separator:
        delimiter = separator[1]
    else:
        is_whole = len(head) < _HEAD_BYTES
        delimiter = _detect_delimiter(sample, is_whole=is_whole, expected=expected)
    return Dialect(
        encoding=encoding,
        delimiter=delimiter,
        has_separator_line=separator is not None,
        is_guess=is_guess,
    )


@contextmanager
def open_text(stream: BinaryIO, encoding: str) -> Iterator[io.TextIOWrapper]:
    """The stream as text from its start, line ends kept, faults as U+FFFD; it stays open."""
    stream.seek(0)
    text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="")
    try:
        yield text
    finally:
        text.detach()


def _refuse_other_formats(head: bytes) -> None:
    for magic, name in _OTHER_FORMATS:
        if head.startswith(magic):
            raise fail(
                "not_text",
                f"this is {name}, not a CSV; in your spreadsheet choose “Save as” or “Download”"
                " and “CSV UTF-8”",
            )


def _detect_encoding(stream: BinaryIO, head: bytes) -> tuple[str, bool]:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding, False
    if wide := _utf16_without_mark(head):
        return wide, False
    letters, faults = _try_utf8(stream)
    # Text in another encoding holds hardly a valid sequence; more of them mean damaged UTF-8,
    # and the cells at fault are named when they are read.
    if not faults or letters > faults:
        return "utf-8", False
    return _guess_legacy(stream), True


def _utf16_without_mark(head: bytes) -> str | None:
    even, odd = head[0::2], head[1::2]
    if not odd:
        return None
    # Latin letters leave every second byte empty.
    if odd.count(0) > 0.4 * len(odd) and even.count(0) < 0.1 * len(even):
        return "utf-16-le"
    if even.count(0) > 0.4 * len(even) and odd.count(0) < 0.1 * len(odd):
        return "utf-16-be"
    return None


def _try_utf8(stream: BinaryIO) -> tuple[int, int]:
    """Numbers of letters beyond ASCII that are valid UTF-8, and of faults."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    letters, faults = 0, 0
    stream.seek(0)
    while True:
        chunk = stream.read(_CHUNK_BYTES)
        text = decoder.decode(chunk, final=not chunk)
        if not text.isascii():
            found = text.count("\ufffd")
            faults += found
            letters += sum(character > "\x7f" for character in text) - found
        if not chunk:
            return letters, faults


def _guess_legacy(stream: BinaryIO) -> str:
    stream.seek(0)
    # Lines without foreign letters say nothing about the encoding.
    sample = b"".join(line for line in stream.readlines(_CHUNK_BYTES) if not line.isascii())
    matches = from_bytes(sample, cp_isolation=list(_LEGACY))
    best = matches.best()
    guess = _LEGACY[0]
    if best is not None:
        # A few words often read well in several encodings; the most common one is meant then.
        tied = {
            name
            for match in matches
            if (match.chaos, match.coherence) == (best.chaos, best.coherence)
            for name in match.could_be_from_charset
        }
        guess = next((name for name in _LEGACY if name in tied), best.encoding)
    for encoding in dict.fromkeys((guess, *_LEGACY[:1])):
        if _decodes(stream, encoding):
            return encoding
    raise fail("unknown_encoding", "the text encoding is unknown; save the file as “CSV UTF-8”")


def _decodes(stream: BinaryIO, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    stream.seek(0)
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _detect_delimiter(sample: str, *, is_whole: bool, expected: Collection[str]) -> str:
    """The delimiter whose header has the expected names and whose rows are equally wide."""
    wanted = {normalise_name(name) for name in expected}
    scores: dict[str, tuple[int, float]] = {}
    for delimiter in DELIMITERS:
        rows = _sample_rows(sample, delimiter, is_whole=is_whole)
        if not rows or len(rows[0]) < 2:
            continue
        header = {normalise_name(name) for name in rows[0]}
        same_width = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
        scores[delimiter] = (len(wanted & header), same_width)
    if not scores:
        return ","
    best = max(scores.values())
    tied = [delimiter for delimiter, score in scores.items() if score == best]
    return tied[0] if len(tied) == 1 else _break_tie(sample, tied)


def _sample_rows(sample: str, delimiter: str, *, is_whole: bool) -> list[list[str]]:
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter):
            if any(cell.strip() for cell in row):
                rows.append(row)
            if len(rows) > _SAMPLE_ROWS:
                break
    except csv.Error:
        return []
    # The last row of a cut sample is cut too.
    return rows if is_whole or len(rows) < 2 else rows[:-1]


def _break_tie(sample: str, tied: list[str]) -> str:
    lines = sample.splitlines(keepends=True)[:_SAMPLE_ROWS]
    found = clevercsv.Detector().detect("".join(lines), delimiters=tied)
    return found.delimiter if found and found.delimiter in tied else tied[0]
