"""Reading a table of text row by row in flat memory, mending what is safe and naming the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

from app.models.workspace import DEFAULT_MAX_VARIANTS
from app.services.table_cells import BLANKS, find_problem, has_lost_digits, is_clean, mend_cell
from app.services.table_csv import CsvSource
from app.services.table_dialect import Dialect, detect_dialect, normalise_name
from app.services.table_findings import FindingLog, TableFinding, fail
from app.services.table_header import read_header
from app.services.table_questions import (
    ENCODING,
    HEADER,
    SHEET,
    ColumnProfile,
    Question,
    find_converter,
)
from app.services.table_workbook import WorkbookSource

_HEAD_BYTES: Final = 8
_ZIP_MAGIC: Final = b"PK\x03\x04"
_OTHER_FORMATS: Final = (
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook, or one with a password"),
    (b"%PDF", "a PDF file"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"\x1f\x8b", "a compressed file"),
)


class Source(Protocol):
    """Where records come from: a CSV or a sheet. `records` may be read more than once."""

    is_guess: bool
    delimiter_name: str

    def records(self, log: FindingLog) -> Iterator[tuple[int, list[str]]]:
        """Records that are not blank, each with the line on which it begins."""

    def to_dict(self) -> dict[str, str]: ...


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

    def __init__(
        self,
        source: Source,
        *,
        answers: Mapping[str, str] | None = None,
        on_repair: Callable[[TableFinding], None] | None = None,
        max_rows: int = DEFAULT_MAX_VARIANTS,
    ) -> None:
        self.source = source
        self._max_rows = max_rows
        self.log = FindingLog()
        self._answers = answers or {}
        self._on_repair = on_repair
        self._is_headerless = self._answers.get(HEADER) == "data"
        line, first = next(source.records(FindingLog()), (1, []))
        names = [f"column {n}" for n, _ in enumerate(first, 1)] if self._is_headerless else first
        self._head = read_header(names, line)
        self.header = self._head.names
        self.profiles: list[ColumnProfile] = []

    @property
    def findings(self) -> list[TableFinding]:
        return self.log.findings()

    @property
    def repair_count(self) -> int:
        return self.log.repair_count

    def rows(self) -> Iterator[TableRow]:
        """Read the data rows; errors and repairs go to `findings` on the way."""
        self.log = FindingLog(self._on_repair)
        self._head.report(self.log)
        self._asks_to_check = self.source.is_guess
        self._row_ids: dict[str, int] = {}
        self.profiles = [
            ColumnProfile(name=name, key=key)
            for name, key in zip(self.header, self._head.keys, strict=True)
        ]
        self._converters = [find_converter(self._answers, key) for key in self._head.keys]
        self._converts = any(self._converters)
        records = self.source.records(self.log)
        if not self._is_headerless:
            next(records, None)
        number = 0
        for line, cells in records:
            number += 1
            if number > self._max_rows:
                message = (
                    f"the table has more than {self._max_rows:,} rows, the most that this"
                    " workspace renders in one batch; split the file, or ask whoever runs Adloom"
                    " here for a higher limit"
                )
                self.log.error("too_many_rows", message, row=number, line=line)
                return
            row = self._clean(cells, number, line)
            if row is not None:
                yield row
        if number == 0:
            message = "there is a header but no row below it; add a row for each variant"
            self.log.error("no_rows", message)
        self._warn_of_columns()

    def questions(self, placeholders_columns: Iterable[str] = ()) -> list[Question]:
        """What to ask after the rows were read; required for columns that fill placeholders."""
        needed = set(placeholders_columns)
        return [
            question
            for profile in self.profiles
            for question in profile.questions(is_required=profile.name in needed)
        ]

    def _clean(self, cells: list[str], number: int, line: int) -> TableRow | None:
        """The row with mended cells, or None when it cannot be used."""
        if self._is_header(cells):
            message = "the header stands here again and was skipped"
            self.log.repair("repeated_header", message, line=line)
            return None
        width = len(self.header)
        if len(cells) != width:
            if len(cells) < width or any(c.strip(BLANKS) for c in cells[width:]):
                self.log.error("ragged_row", self._ragged(len(cells)), row=number, line=line)
                return None
            cells = cells[:width]
        is_good = True
        if not is_clean(cells):
            cells, is_good = self._mend(cells, number, line)
        # Before conversion, so that a question stays to be seen and answered otherwise.
        for profile, value in zip(self.profiles, cells, strict=True):
            profile.feed(value, number, line)
        if self._converts and is_good:
            cells, is_good = self._convert(cells, number, line)
        if not is_good or not self._is_new_id(cells, number, line):
            return None
        return TableRow(number=number, line=line, cells=tuple(cells))

    def _mend(self, cells: list[str], number: int, line: int) -> tuple[list[str], bool]:
        mended: list[str] = []
        is_good = True
        for column, cell in zip(self.header, cells, strict=True):
            value, repairs = mend_cell(cell)
            place: dict[str, Any] = {"row": number, "line": line, "column": column}
            for code, message in repairs:
                self.log.repair(code, message, **place, before=cell, after=value)
            problem = find_problem(value)
            if problem:
                self.log.error(*problem, **place)
                is_good = False
            elif self._asks_to_check and not value.isascii():
                self._ask_to_check(value, place)
            mended.append(value)
        return mended, is_good

    def _convert(self, cells: list[str], number: int, line: int) -> tuple[list[str], bool]:
        converted: list[str] = []
        is_good = True
        for column, value, convert in zip(self.header, cells, self._converters, strict=True):
            result = convert(value) if convert else value
            place: dict[str, Any] = {"row": number, "line": line, "column": column}
            if result is None:
                message = f"{value!r} does not fit the answer you gave for this column; correct it"
                self.log.error("misfit", message, **place)
                is_good = False
            elif result != value:
                message = "rewritten as you answered for this column"
                self.log.repair("answered", message, **place, before=value, after=result)
            converted.append(value if result is None else result)
        return converted, is_good

    def _is_header(self, cells: Sequence[str]) -> bool:
        # Quick: nearly all rows differ from the header in their first letter.
        if self._head.keys[0][:1] not in cells[0].casefold():
            return False
        return [normalise_name(cell) for cell in cells[: len(self.header)]] == self._head.keys

    def _ragged(self, found: int) -> str:
        width = len(self.header)
        if found < width:
            way_out = "add the missing cells; an empty cell still needs its delimiter"
        else:
            name = self.source.delimiter_name
            way_out = f"put a cell that contains {name} in double quotes"
        cells = "1 cell" if found == 1 else f"{found} cells"
        return f"this row has {cells}, the header has {width}; {way_out}"

    def _ask_to_check(self, value: str, place: Mapping[str, Any]) -> None:
        self._asks_to_check = False
        encoding = self.source.to_dict()["encoding"]
        self.log.warn(
            "guessed_encoding",
            f"the file does not say its encoding; read as {encoding} this value is"
            f" “{value[:60]}”. If that is wrong, choose another reading",
            **place,
        )

    def _is_new_id(self, cells: Sequence[str], number: int, line: int) -> bool:
        row_id = cells[self._head.row_id_at] if self._head.row_id_at >= 0 else ""
        if not row_id:
            return True
        column = self.header[self._head.row_id_at]
        place: dict[str, Any] = {"row": number, "line": line, "column": column}
        if has_lost_digits(row_id):
            message = f"the id {row_id!r} lost its last digits in a spreadsheet; enter it as text"
            self.log.error("lost_digits", message, **place)
        other = self._row_ids.setdefault(row_id, number)
        if other != number:
            message = f"{row_id!r} names row {other:,} already; give each row an id of its own"
            self.log.error("duplicate_row_id", message, **place)
        return other == number

    def _warn_of_columns(self) -> None:
        for profile in self.profiles:
            if profile.month_name is not None:
                value, row, line = profile.month_name
                message = (
                    f"{value!r} may be a text that a spreadsheet took for a date; compare it with"
                    " your source"
                )
                self.log.warn("date_like", message, row=row, line=line, column=profile.name)


def open_table(
    stream: BinaryIO,
    *,
    dialect: Dialect | None = None,
    answers: Mapping[str, str] | None = None,
    on_repair: Callable[[TableFinding], None] | None = None,
    max_rows: int = DEFAULT_MAX_VARIANTS,
) -> Table:
    """Read the header of a seekable stream, CSV or XLSX, whose way of reading is found out.

    TableError when it cannot be read at all, NeedsAnswer when a person must choose a sheet first;
    other errors are in the table's `findings`.
    """
    given = answers or {}
    stream.seek(0)
    head = stream.read(_HEAD_BYTES)
    source: Source
    if head.startswith(_ZIP_MAGIC):
        source = WorkbookSource(stream, sheet=given.get(SHEET))
    else:
        _refuse_other_formats(head)
        source = CsvSource(stream, dialect or detect_dialect(stream, encoding=given.get(ENCODING)))
    return Table(source, answers=given, on_repair=on_repair, max_rows=max_rows)


def _refuse_other_formats(head: bytes) -> None:
    for magic, name in _OTHER_FORMATS:
        if head.startswith(magic):
            message = f"this is {name}; in your spreadsheet save it as XLSX or as “CSV UTF-8”"
            raise fail("not_text", message)
