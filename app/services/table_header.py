"""The header of a table: its names, tidied and checked, and where the row ids stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.services.table_cells import BLANKS
from app.services.table_dialect import normalise_name
from app.services.table_findings import FindingLog, fail

MAX_COLUMNS: Final = 200
MAX_NAME_LENGTH: Final = 100
_ROW_ID: Final = "row_id"


@dataclass(frozen=True, kw_only=True)
class Header:
    """Column names as they are shown, as they are compared, and as they stood in the file.

    `row_id_at` is the position of the column that names the rows, -1 without one.
    """

    names: tuple[str, ...]
    keys: list[str]
    written: tuple[str, ...]
    line: int
    row_id_at: int

    def report(self, log: FindingLog) -> None:
        """Log what is wrong with the names and what was tidied in them."""
        first: dict[str, int] = {}
        for position, name in enumerate(self.names, 1):
            other = first.setdefault(normalise_name(name), position)
            self._check_name(log, name, position, other=other)
        for old, new in zip(self.written, self.names, strict=False):
            if old != new:
                message = "blanks in a column’s name were tidied"
                log.repair(
                    "trimmed_name", message, line=self.line, column=new, before=old, after=new
                )

    def _check_name(self, log: FindingLog, name: str, position: int, *, other: int) -> None:
        if not name:
            log.error("unnamed_column", f"column {position} has no name", line=self.line)
        elif other != position:
            message = f"columns {other} and {position} have the same name; rename one of them"
            log.error("duplicate_column", message, line=self.line, column=name)
        if "\0" in name:
            message = f"the name of column {position} holds a NUL byte; export the file again"
            log.error("nul_byte", message, line=self.line)
        elif len(name) > MAX_NAME_LENGTH:
            message = (
                f"this name has {len(name):,} characters; {MAX_NAME_LENGTH} are allowed. Is"
                " the first line a header?"
            )
            log.error("long_name", message, line=self.line, column=name[:40] + "…")


def read_header(written: Sequence[str], line: int) -> Header:
    """The header from the cells of its line; TableError when it holds no table at all."""
    names = [" ".join(name.strip(BLANKS).split()) for name in written]
    # Spreadsheets write empty columns at the end of every line.
    while names and not names[-1]:
        names.pop()
    if len(names) > MAX_COLUMNS:
        message = f"the header has {len(names):,} columns; {MAX_COLUMNS} are allowed"
        raise fail("too_many_columns", message, line=line)
    if not names:
        raise fail("no_header", "the first line holds no column name; add a header line")
    keys = [normalise_name(name) for name in names]
    return Header(
        names=tuple(names),
        keys=keys,
        written=tuple(written),
        line=line,
        row_id_at=keys.index(_ROW_ID) if _ROW_ID in keys else -1,
    )
