"""What is found in a table: each finding with its row, line and column, bounded in number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

from app.errors import InvalidInput

# Of each kind; the rest is counted, so memory stays flat whatever the file holds.
MAX_PER_CODE: Final = 50


class Severity(StrEnum):
    ERROR = "error"  # the table cannot be used
    WARNING = "warning"  # to be looked at
    REPAIR = "repair"  # mended without loss


@dataclass(frozen=True, kw_only=True)
class TableFinding:
    """One thing found. `row` counts data rows from 1, `line` lines of the file from 1.

    A repair of a cell holds its text `before` and `after`.
    """

    severity: Severity
    code: str
    message: str
    row: int | None = None
    line: int | None = None
    column: str | None = None
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        places = []
        if self.row is not None:
            places.append(f"row {self.row:,}" + (f" (line {self.line:,})" if self.line else ""))
        elif self.line is not None:
            places.append(f"line {self.line:,}")
        if self.column is not None:
            places.append(f"column “{self.column}”")
        place = ", ".join(places)
        text = f"{place}: {self.message}" if place else self.message
        return f"{text[:1].upper()}{text[1:]}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TableFinding:
        """Read what `to_dict` wrote."""
        return cls(**{**data, "severity": Severity(data["severity"])})


class TableError(InvalidInput):
    """The table cannot be used; `findings` holds what was found, errors first."""

    code = "invalid_table"

    def __init__(self, findings: Iterable[TableFinding]) -> None:
        self.findings = sorted(findings, key=lambda item: item.severity is not Severity.ERROR)
        errors = [item for item in self.findings if item.severity is Severity.ERROR]
        super().__init__("\n".join(map(str, errors)), field="file")


class FindingLog:
    """Collects findings: errors and warnings one by one, repairs as one line per kind.

    `on_repair` is told of every single repair.
    """

    def __init__(self, on_repair: Callable[[TableFinding], None] | None = None) -> None:
        self._kept: list[TableFinding] = []
        self._counts: Counter[str] = Counter()
        self._repairs: dict[str, TableFinding] = {}
        self._on_repair = on_repair
        self.repair_count = 0

    def add(self, finding: TableFinding) -> None:
        self._counts[finding.code] += 1
        if finding.severity is Severity.REPAIR:
            self.repair_count += 1
            self._repairs.setdefault(finding.code, finding)
            if self._on_repair is not None:
                self._on_repair(finding)
        elif self._counts[finding.code] <= MAX_PER_CODE:
            self._kept.append(finding)

    def error(self, code: str, message: str, **place: Any) -> None:
        """Add an error; `place` are `row`, `line` and `column`, as far as they are known."""
        self.add(TableFinding(severity=Severity.ERROR, code=code, message=message, **place))

    def warn(self, code: str, message: str, **place: Any) -> None:
        self.add(TableFinding(severity=Severity.WARNING, code=code, message=message, **place))

    def repair(self, code: str, message: str, **place: Any) -> None:
        """Add a repair; `place` also holds `before` and `after` where a cell was mended."""
        self.add(TableFinding(severity=Severity.REPAIR, code=code, message=message, **place))

    def count(self, code: str) -> int:
        return self._counts[code]

    @property
    def has_errors(self) -> bool:
        return any(item.severity is Severity.ERROR for item in self._kept)

    def findings(self) -> list[TableFinding]:
        """Errors and warnings in file order, a line for what was left out, then the repairs."""
        found = list(self._kept)
        for code, number in self._counts.items():
            if code not in self._repairs and number > MAX_PER_CODE:
                kept = next(item for item in self._kept if item.code == code)
                left_out = f"and {number - MAX_PER_CODE:,} more like the {MAX_PER_CODE} above"
                found.append(
                    TableFinding(severity=kept.severity, code=f"{code}_more", message=left_out)
                )
        for code, first in self._repairs.items():
            number = self._counts[code]
            times = "" if number == 1 else f" ({number:,} times; here is the first)"
            found.append(replace(first, message=first.message + times))
        return found


def fail(code: str, message: str, *, line: int | None = None) -> TableError:
    """The error of a file that cannot be read on at all."""
    finding = TableFinding(severity=Severity.ERROR, code=code, message=message, line=line)
    return TableError([finding])
