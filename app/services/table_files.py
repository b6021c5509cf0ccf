"""Tables as files: the mended rows and the list of repairs, written once and read as streams."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from app.services.table_cells import neutralise
from app.services.table_findings import TableFinding
from app.services.tables import TableRow

# The list of repairs may outgrow the table itself; beyond this they are counted only.
MAX_REPAIRS: Final = 200_000
REPAIR_COLUMNS: Final = ("row", "line", "column", "before", "after", "why")
_BYTE_ORDER_MARK: Final = "\ufeff"
_BLOCK_CHARACTERS: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class UploadRow:
    """A data row: `number` counts from 1, `line` is where it begins; cells by column name.

    `end` is the byte in the table's file where the next row begins, 0 where that is not known.
    """

    number: int
    line: int
    cells: Mapping[str, str]
    end: int = 0


class TableFiles(AbstractContextManager["TableFiles"]):
    """Writes mended rows and repairs below a folder while a table is read."""

    def __init__(self, folder: Path) -> None:
        self.table, self.repairs = folder / "mended.csv", folder / "repairs.csv"
        self.repairs_written = 0

    def __enter__(self) -> Self:
        self._table = self.table.open("w", encoding="utf-8", newline="")
        self._repairs = self.repairs.open("w", encoding="utf-8", newline="")
        self._rows, self._list = csv.writer(self._table), csv.writer(self._repairs)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._table.close()
        self._repairs.close()

    def add_row(self, row: TableRow) -> None:
        self._rows.writerow((row.number, row.line, *row.cells))

    def add_repair(self, repair: TableFinding) -> None:
        if self.repairs_written < MAX_REPAIRS:
            self.repairs_written += 1
            self._list.writerow(
                (
                    repair.row,
                    repair.line,
                    repair.column,
                    repair.before,
                    repair.after,
                    repair.message,
                )
            )


def read_mended(file: BinaryIO, header: Sequence[str], *, offset: int = 0) -> Iterator[UploadRow]:
    """The rows that TableFiles wrote; `offset` is where in the table `file` stands, at a row."""
    lines = _CountedLines(file, offset)
    for number, line, *cells in csv.reader(lines):
        named = dict(zip(header, cells, strict=True))
        yield UploadRow(number=int(number), line=int(line), cells=named, end=lines.offset)


class _CountedLines:
    """Lines of a UTF-8 file, with the byte at which the next one begins.

    A line ends with the byte of a line feed, which is part of no other character. The CSV reader
    takes no more lines than its record has, so after a record this is where the next one begins.
    """

    def __init__(self, file: BinaryIO, offset: int) -> None:
        self.offset = offset
        self._file = file

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = next(self._file)
        self.offset += len(line)
        return line.decode()


def read_repairs(file: BinaryIO) -> Iterator[dict[str, str]]:
    """The repairs that TableFiles wrote, by REPAIR_COLUMNS."""
    with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        yield from csv.DictReader(text, fieldnames=REPAIR_COLUMNS)


def export_csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[bytes]:
    """A CSV as Excel reads it, in blocks, without a cell that it would run as a formula."""
    text = io.StringIO(newline="")
    text.write(_BYTE_ORDER_MARK)
    writer = csv.writer(text)
    writer.writerow(map(neutralise, header))
    for row in rows:
        writer.writerow(map(neutralise, row))
        if text.tell() > _BLOCK_CHARACTERS:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()
