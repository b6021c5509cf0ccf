"""The records of a CSV, streamed: each with the line on which it begins."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import BinaryIO, Final, Self

from app.services.table_cells import BLANKS
from app.services.table_dialect import Dialect, open_text
from app.services.table_findings import FindingLog, fail

MAX_LINE_LENGTH: Final = 1_000_000
_DELIMITER_NAMES: Final = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}


class CsvSource:
    """A CSV that can be read more than once; the stream must be seekable."""

    def __init__(self, stream: BinaryIO, dialect: Dialect) -> None:
        self.dialect = dialect
        self.is_guess = dialect.is_guess
        self.delimiter_name = _DELIMITER_NAMES.get(dialect.delimiter, repr(dialect.delimiter))
        self._stream = stream

    def to_dict(self) -> dict[str, str]:
        return self.dialect.to_dict()

    def records(self, log: FindingLog) -> Iterator[tuple[int, list[str]]]:
        """Records that are not blank; blank ones go to the log as repairs."""
        self._report_reading(log)
        with open_text(self._stream, self.dialect.encoding) as text:
            yield from self._read(text, log)

    def _report_reading(self, log: FindingLog) -> None:
        encoding = self.dialect.encoding
        if encoding == "utf-8-sig":
            log.repair("byte_order_mark", "the invisible byte order mark was removed", line=1)
        elif encoding != "utf-8":
            log.repair("encoding", f"the text was turned from {encoding.upper()} into UTF-8")
        if self.dialect.has_separator_line:
            log.repair("separator_line", "the line “sep=” was obeyed and left out", line=1)

    def _read(self, text: io.TextIOWrapper, log: FindingLog) -> Iterator[tuple[int, list[str]]]:
        lines = _Lines(text)
        reader = csv.reader(lines, delimiter=self.dialect.delimiter)
        if self.dialect.has_separator_line:
            next(reader, None)
        while True:
            line = lines.count + 1
            try:
                cells = next(reader, None)
            except csv.Error:
                message = "a cell is far too long; is a double quote opened here and never closed?"
                raise fail("unclosed_quote", message, line=line) from None
            if cells is None:
                return
            # The reader asks for another line only inside quotes.
            if lines.is_at_end:
                message = "a double quote is opened here and never closed; close it or delete it"
                raise fail("unclosed_quote", message, line=line)
            # A lone empty cell differs from a blank line by its quotes alone.
            is_quoted = len(cells) == 1 and lines.last.strip(BLANKS)
            if is_quoted or any(cell.strip(BLANKS) for cell in cells):
                yield line, cells
            else:
                log.repair("blank_row", "a blank row was skipped", line=line)


class _Lines:
    """The lines of a text, counted; a line without end is refused before it fills the memory."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self.count, self.last = 0, ""
        self.is_at_end = False
        self._text = text

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._text.readline(MAX_LINE_LENGTH)
        if not line:
            self.is_at_end = True
            raise StopIteration
        self.count += 1
        self.last = line
        if len(line) == MAX_LINE_LENGTH:
            message = f"this line has more than {MAX_LINE_LENGTH:,} characters; is this a CSV?"
            raise fail("long_line", message, line=self.count)
        return line
