"""What a campaign asks of a table: a header that fits, and a usable value in every cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from app.services.table_cells import LOST_DIGITS, has_lost_digits
from app.services.table_columns import ROW_ID, map_columns, suggest_column
from app.services.table_files import UploadRow
from app.services.table_findings import FindingLog, TableFinding
from app.services.table_questions import HEADER, Choice, Question
from app.services.term_index import TermIndex

# Rows that tell whether the first line is data.
_LOOK_AT_ROWS: Final = 1_000
# Rows whose values differ by these alone ask for the same picture.
_PLAIN_QUOTES: Final = str.maketrans("‘’‚“”„«»", "'" * 3 + '"' * 5)


class ValueCheck:
    """Looks at the values that fill placeholders, row by row."""

    def __init__(
        self,
        columns: Mapping[str, str],
        log: FindingLog,
        *,
        optional: Iterable[str] = (),
        terms: TermIndex,
    ) -> None:
        self._columns = columns
        self._terms = terms
        self._may_be_empty = set(optional)
        self._log = log
        self._first: dict[int, int] = {}
        self._repeats = 0
        self._example = (0, 0)

    def feed(self, row: UploadRow) -> None:
        values = []
        for name, column in self._columns.items():
            value = row.cells[column]
            values.append(value if value.isascii() else value.translate(_PLAIN_QUOTES))
            if not value and name not in self._may_be_empty:
                message = f"there is no value for {{{{ {name} }}}}; fill the cell or delete the row"
                self._error(row, column, "missing_value", message)
            elif has_lost_digits(value):
                self._error(row, column, "lost_digits", LOST_DIGITS.format(value=value))
            for term in self._terms.find(value):
                message = f"{term} is a blocked term; change the cell or delete the row"
                self._error(row, column, "blocked_term", message)
        if values:
            self._find_repeat(hash(tuple(values)), row.number)

    def finish(self) -> None:
        """Warn of rows that ask for the same variant."""
        if self._repeats:
            first, second = self._example
            more = "" if self._repeats == 1 else f" ({self._repeats:,} such rows)"
            message = (
                f"row {second:,} has the same values as row {first:,}{more}; what is the same is"
                " rendered once"
            )
            self._log.warn("same_values", message)

    def _find_repeat(self, key: int, number: int) -> None:
        first = self._first.setdefault(key, number)
        if first != number:
            self._example = self._example if self._repeats else (first, number)
            self._repeats += 1

    def _error(self, row: UploadRow, column: str, code: str, message: str) -> None:
        self._log.error(code, message, row=row.number, line=row.line, column=column)


def check_values(
    rows: Iterable[UploadRow],
    columns: Mapping[str, str],
    *,
    optional: Iterable[str] = (),
    terms: TermIndex,
) -> list[TableFinding]:
    """Errors of the values that fill placeholders: missing, cut, blocked, by row and column."""
    log = FindingLog()
    check = ValueCheck(columns, log, optional=optional, terms=terms)
    for row in rows:
        check.feed(row)
    return log.findings()


class HeaderLook:
    """Counts rows and notices when a “header” stands in the rows again, cell by cell."""

    def __init__(self, header: Sequence[str]) -> None:
        self.row_count = 0
        self._header = header
        self._keys = [name.casefold() for name in header]
        # No column is called 42 or https://….
        self.is_like_data = any(name[:1].isdigit() or "://" in name for name in header)

    def feed(self, cells: Sequence[str]) -> None:
        self.row_count += 1
        if not self.is_like_data and self.row_count <= _LOOK_AT_ROWS:
            lowered = [cell.casefold() for cell in cells]
            self.is_like_data = any(map(str.__eq__, lowered, self._keys))


def is_unknown_header(header: Sequence[str], names: Sequence[str]) -> bool:
    """True when no column is called like a placeholder, or at least somewhat like one."""
    if not names or map_columns(header, [*names, ROW_ID]):
        return False
    return not any(suggest_column(name, header) for name in names)


def ask_header(header: Sequence[str], look: HeaderLook) -> Question:
    return Question(
        question_id=HEADER,
        text="No column is called like a placeholder. What is the first line of this file?",
        choices=(
            Choice(value="names", label="It names the columns", example=_shown(header)),
            Choice(
                value="data",
                label="It is the first row; the columns have no names",
                example="column 1, column 2 …",
            ),
        ),
        preset="data" if look.is_like_data else None,
    )


def report_missing_header(log: FindingLog, header: Sequence[str], names: Sequence[str]) -> None:
    message = (
        f"the first line ({_shown(header)}) looks like data, not like a header; add a line above it"
        f" with the column names, such as {','.join((ROW_ID, *names))}"
    )
    log.error("no_header", message, line=1)


def report_columns(
    log: FindingLog, header: Sequence[str], columns: Mapping[str, str], names: Sequence[str]
) -> None:
    """Warn of placeholders, those without typed values, for which there is no column."""
    if names and not columns:
        message = (
            f"no column ({_shown(header)}) is called like a placeholder ({', '.join(names)});"
            " choose the columns by hand, or rename them"
        )
        log.warn("no_known_column", message, line=1)
        return
    for name in names:
        if name not in columns:
            near = suggest_column(name, header)
            hint = f"; did you mean “{near}”?" if near else ""
            log.warn("missing_column", f"there is no column for {{{{ {name} }}}}{hint}", line=1)


def _shown(header: Sequence[str]) -> str:
    return ", ".join(header[:5]) + (" …" if len(header) > 5 else "")
