"""Reading a table of text row by row in flat memory, mending what is safe and naming the rest."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Final, Self

from app.services.prompts import CONTROL_CHARACTER
from app.services.table_dialect import Dialect, detect_dialect, normalise_name, open_text
from app.services.table_findings import FindingLog, Severity, TableFinding, fail

MAX_ROWS: Final = 100_000
MAX_COLUMNS: Final = 200
MAX_NAME_LENGTH: Final = 100
MAX_CELL_LENGTH: Final = 2_000
MAX_LINE_LENGTH: Final = 1_000_000

# Trimmed from both ends: blanks, no-break and zero-width ones, a byte order mark in the middle.
_BLANKS: Final = " \t\r\n\f\v\u00a0\u2007\u202f\u2009\u3000\u200b\u200c\u200d\u2060\ufeff"
_ROW_ID: Final = "row_id"
_DELIMITER_NAMES: Final = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A data row: `number` counts from 1, `line` is where it begins in the file."""

    number: int
    line: int
    cells: tuple[str, ...]


class Table:
    """A table whose header has been read; `findings` are complete after `rows` has ended.

    Rows with errors are left out of `rows`, so what it gives can be used.
    """

    def __init__(self, stream: BinaryIO, dialect: Dialect) -> None:
        self.dialect = dialect
        self.log = FindingLog()
        self._stream = stream
        with open_text(stream, dialect.encoding) as text:
            line, names = next(self._records(text, reports_blanks=False), (1, []))
        self.header = self._read_header(names, line)
        self._row_ids: dict[str, int] = {}
        self._asks_to_check = dialect.is_guess

    @property
    def findings(self) -> list[TableFinding]:
        return self.log.findings()

    def rows(self) -> Iterator[TableRow]:
        """Read the data rows once; errors and repairs go to `findings` on the way."""
        with open_text(self._stream, self.dialect.encoding) as text:
            number = 0
            for line, cells in islice(self._records(text), 1, None):
                number += 1
                if number > MAX_ROWS:
                    self._error(
                        "too_many_rows",
                        f"the table has more than {MAX_ROWS:,} rows; split the file",
                        row=number,
                        line=line,
                    )
                    return
                row = self._clean(cells, number, line)
                if row is not None:
                    yield row
            if number == 0:
                self._error(
                    "no_rows", "there is a header but no row below it; add a row for each variant"
                )

    def _records(
        self, text: io.TextIOWrapper, *, reports_blanks: bool = True
    ) -> Iterator[tuple[int, list[str]]]:
        """Records that are not blank, each with the line on which it begins."""
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
            is_quoted = len(cells) == 1 and lines.last.strip(_BLANKS)
            if is_quoted or any(cell.strip(_BLANKS) for cell in cells):
                yield line, cells
            elif reports_blanks:
                self._repair("blank_row", "a blank row was skipped", line)

    def _read_header(self, names: Sequence[str], line: int) -> tuple[str, ...]:
        header = [" ".join(name.strip(_BLANKS).split()) for name in names]
        # Spreadsheets write empty columns at the end of every line.
        while header and not header[-1]:
            header.pop()
        if len(header) > MAX_COLUMNS:
            raise fail(
                "too_many_columns",
                f"the header has {len(header):,} columns; {MAX_COLUMNS} are allowed",
                line=line,
            )
        first: dict[str, int] = {}
        for position, name in enumerate(header, 1):
            key = normalise_name(name)
            other = first.setdefault(key, position)
            if not name:
                self._error("unnamed_column", f"column {position} has no name", line=line)
            elif other != position:
                message = f"columns {other} and {position} have the same name; rename one of them"
                self._error("duplicate_column", message, line=line, column=name)
            if "\0" in name:
                message = f"the name of column {position} holds a NUL byte; export the file again"
                self._error("nul_byte", message, line=line)
            elif len(name) > MAX_NAME_LENGTH:
                message = (
                    f"this name has {len(name):,} characters; {MAX_NAME_LENGTH} are allowed. Is"
                    " the first line a header?"
                )
                self._error("long_name", message, line=line, column=name[:40] + "…")
        if not header:
            raise fail("no_header", "the first line holds no column name; add a header line")
        self._row_id_at = first.get(_ROW_ID, 0) - 1
        self._header_key = [normalise_name(name) for name in header]
        return tuple(header)

    def _clean(self, cells: list[str], number: int, line: int) -> TableRow | None:
        """The row with trimmed cells, or None when it cannot be used."""
        if self._is_header(cells):
            self._repair("repeated_header", "the header stands here again and was skipped", line)
            return None
        width = len(self.header)
        if len(cells) != width and (len(cells) < width or any(c.strip() for c in cells[width:])):
            self._error("ragged_row", self._ragged(len(cells)), row=number, line=line)
            return None
        is_good = True
        cleaned: list[str] = []
        for column, cell in zip(self.header, cells, strict=False):
            value = cell.strip(_BLANKS)
            if len(value) != len(cell):
                message = "blanks around a value were removed"
                self._repair("trimmed", message, line, row=number, column=column)
            if not value.isprintable():
                value = value.replace("\r\n", "\n").replace("\r", "\n")
            problem = _cell_problem(value)
            if problem:
                self._error(*problem, row=number, line=line, column=column)
                is_good = False
            elif self._asks_to_check and not value.isascii():
                self._ask_to_check(value, number, line, column)
            cleaned.append(value)
        if not is_good or not self._is_new_id(cleaned, number, line):
            return None
        return TableRow(number=number, line=line, cells=tuple(cleaned))

    def _is_header(self, cells: Sequence[str]) -> bool:
        if normalise_name(cells[0]) != self._header_key[0]:
            return False
        return [normalise_name(cell) for cell in cells[: len(self.header)]] == self._header_key

    def _ragged(self, found: int) -> str:
        width = len(self.header)
        if found < width:
            way_out = "add the missing cells; an empty cell still needs its delimiter"
        else:
            name = _DELIMITER_NAMES.get(self.dialect.delimiter, repr(self.dialect.delimiter))
            way_out = f"put a cell that contains {name} in double quotes"
        return f"this row has {found} cells, the header has {width}; {way_out}"

    def _ask_to_check(self, value: str, number: int, line: int, column: str) -> None:
        self._asks_to_check = False
        self.log.add(
            TableFinding(
                severity=Severity.WARNING,
                code="guessed_encoding",
                message=f"the file does not say its encoding; read as {self.dialect.encoding} this"
                f" value is “{value[:60]}”. If that is wrong, save the file as “CSV UTF-8”",
                row=number,
                line=line,
                column=column,
            )
        )

    def _is_new_id(self, cells: Sequence[str], number: int, line: int) -> bool:
        row_id = cells[self._row_id_at] if self._row_id_at >= 0 else ""
        other = self._row_ids.setdefault(row_id, number) if row_id else number
        if other != number:
            message = f"{row_id!r} names row {other:,} already; give each row an id of its own"
            self._error(
                "duplicate_row_id",
                message,
                row=number,
                line=line,
                column=self.header[self._row_id_at],
            )
        return other == number

    def _error(
        self,
        code: str,
        message: str,
        *,
        row: int | None = None,
        line: int | None = None,
        column: str | None = None,
    ) -> None:
        self.log.add(
            TableFinding(
                severity=Severity.ERROR,
                code=code,
                message=message,
                row=row,
                line=line,
                column=column,
            )
        )

    def _repair(
        self,
        code: str,
        message: str,
        line: int,
        *,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        self.log.add(
            TableFinding(
                severity=Severity.REPAIR,
                code=code,
                message=message,
                row=row,
                line=line,
                column=column,
            )
        )


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


def open_table(
    stream: BinaryIO, *, dialect: Dialect | None = None, expected: Collection[str] = ()
) -> Table:
    """Read the header of a seekable stream, whose way of reading is found out unless given.

    TableError when it cannot be read at all; other errors are in the table's `findings`.
    """
    return Table(stream, dialect or detect_dialect(stream, expected=expected))


def _cell_problem(value: str) -> tuple[str, str] | None:
    if len(value) > MAX_CELL_LENGTH:
        message = f"this value has {len(value):,} characters; {MAX_CELL_LENGTH:,} are allowed"
        return "long_value", message
    if "\ufffd" in value:
        message = "a letter could not be read (\ufffd); correct it and save the file as “CSV UTF-8”"
        return "damaged_text", message
    if not value.isprintable() and (match := CONTROL_CHARACTER.search(value)):
        if match[0] == "\0":
            return "nul_byte", "this value holds a NUL byte; export the file again"
        code = f"U+{ord(match[0]):04X}"
        return "control_character", f"there is an invisible control character ({code}); delete it"
    return None
