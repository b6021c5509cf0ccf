"""How the bytes of a CSV are to be read: encoding, delimiter, and a `sep=` line."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final

import clevercsv
from charset_normalizer import from_bytes

from app.services.table_findings import fail

DELIMITERS: Final = (",", ";", "\t", "|")
_HEAD_BYTES: Final = 64 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
# Longest marks first: the mark of UTF-16 begins that of UTF-32.
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# What spreadsheets write, most common first. Encodings for single languages are told apart
# by letter frequencies, which needs some text.
LEGACY: Final = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "shift_jis", "gb18030", "big5")
# The first characters of a text say as much about its delimiter as all of it.
_LONG_TEXT = re.compile(r"([^,;\t|\"\r\n]{100})[^,;\t|\"\r\n]+")
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


def detect_dialect(stream: BinaryIO, *, encoding: str | None = None) -> Dialect:
    """Find out how to read a seekable stream; TableError when it is no table of text.

    `encoding` is one of LEGACY that a person chose.
    """
    stream.seek(0)
    head = stream.read(_HEAD_BYTES)
    guessed, is_guess = _detect_encoding(stream, head)
    if encoding is not None and is_guess and _decodes(stream, encoding):
        guessed = encoding
    sample = codecs.getincrementaldecoder(guessed)("replace").decode(head)
    if not sample.strip("\ufeff\u200b \t\r\n"):
        raise fail("empty", "the file is empty; it needs a header line and a row for each variant")
    separator = _SEPARATOR_LINE.match(sample)
    return Dialect(
        encoding=guessed,
        delimiter=separator[1] if separator else _detect_delimiter(sample),
        has_separator_line=separator is not None,
        is_guess=is_guess,
    )


def list_readings(stream: BinaryIO) -> dict[str, str]:
    """The first line with foreign letters as each encoding reads it, where they differ."""
    stream.seek(0)
    line = next((line for line in stream.readlines(_CHUNK_BYTES) if not line.isascii()), b"")
    readings: dict[str, str] = {}
    for encoding in LEGACY:
        text = line.decode(encoding, "replace").strip()
        if "\ufffd" not in text and text not in readings.values() and _decodes(stream, encoding):
            readings[encoding] = text
    return readings


@contextmanager
def open_text(stream: BinaryIO, encoding: str) -> Iterator[io.TextIOWrapper]:
    """The stream as text from its start, line ends kept, faults as U+FFFD; it stays open."""
    stream.seek(0)
    text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="")
    try:
        yield text
    finally:
        text.detach()


def _detect_encoding(stream: BinaryIO, head: bytes) -> tuple[str, bool]:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding, False
    # Wide encodings are valid UTF-8 too, full of NUL characters.
    if b"\0" in head:
        wide = from_bytes(head).best()
        if wide is not None and wide.encoding.startswith(("utf_16", "utf_32")):
            return wide.encoding.replace("_", "-"), False
    letters, faults = _try_utf8(stream)
    # Text in another encoding holds hardly a valid sequence; more of them mean damaged UTF-8,
    # and the cells at fault are named when they are read.
    if not faults or letters > faults:
        return "utf-8", False
    return _guess_legacy(stream), True


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
    matches = from_bytes(sample, cp_isolation=list(LEGACY))
    best = matches.best()
    guess = LEGACY[0]
    if best is not None:
        # A few words often read well in several encodings; the most common one is meant then.
        tied = {
            name
            for match in matches
            if (match.chaos, match.coherence) == (best.chaos, best.coherence)
            for name in match.could_be_from_charset
        }
        guess = next((name for name in LEGACY if name in tied), best.encoding)
    for encoding in dict.fromkeys((guess, *LEGACY[:1])):
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


def _detect_delimiter(sample: str) -> str:
    # clevercsv refuses NUL bytes, and its patterns take minutes on a text without a delimiter.
    sample = _LONG_TEXT.sub(r"\1", sample.replace("\0", ""))
    found = clevercsv.Detector().detect(sample, delimiters=list(DELIMITERS))
    # A single column has no delimiter at all.
    return found.delimiter if found and found.delimiter in DELIMITERS else ","
