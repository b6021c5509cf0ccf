"""One pass over a table for a campaign: read, mended, checked, and written down row by row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from app.models.workspace import DEFAULT_MAX_VARIANTS
from app.services.table_checks import (
    HeaderLook,
    ValueCheck,
    ask_header,
    is_unknown_header,
    report_columns,
    report_missing_header,
)
from app.services.table_columns import map_columns, suggest_columns
from app.services.table_dialect import list_readings
from app.services.table_files import TableFiles, UploadRow
from app.services.table_findings import FindingLog, Severity, TableError, TableFinding
from app.services.table_questions import ENCODING, HEADER, Choice, Question
from app.services.table_workbook import NeedsAnswer
from app.services.tables import Table, open_table
from app.services.term_index import TermIndex

# Rows between two reports of how far a pass is.
STEP_ROWS: Final = 2_000
_ENCODING_NAMES: Final = {
    "cp1252": "Western European",
    "cp1250": "Central European",
    "cp1251": "Cyrillic",
    "cp1253": "Greek",
    "cp1254": "Turkish",
    "shift_jis": "Japanese",
    "gb18030": "Chinese (simplified)",
    "big5": "Chinese (traditional)",
}


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a campaign needs of a table: its placeholders and what is known about them.

    `typed` have values without it, `optional` may stay empty, `remembered` are the columns that
    an earlier table of the campaign filled them from. `max_rows` is what a batch may have,
    `terms` what no value may hold.
    """

    names: Sequence[str]
    typed: Collection[str] = ()
    optional: Collection[str] = ()
    remembered: Mapping[str, str] = field(default_factory=dict)
    max_rows: int = DEFAULT_MAX_VARIANTS
    terms: TermIndex = field(default_factory=lambda: TermIndex(()))


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A table that can be used once its required questions are answered."""

    header: tuple[str, ...]
    row_count: int
    findings: tuple[TableFinding, ...]
    questions: tuple[Question, ...]
    reading: Mapping[str, str]
    repair_count: int
    is_open: bool


class TablePass:
    """Reads a table once; `steps` does the work, `result` holds what came of it."""

    def __init__(
        self,
        file: BinaryIO,
        needs: Needs,
        *,
        answers: Mapping[str, str] | None = None,
        files: TableFiles | None = None,
    ) -> None:
        self._file, self._needs, self._files = file, needs, files
        self._answers = answers or {}
        self.result: Checked | None = None
        self.table: Table | None = None

    def steps(self) -> Iterator[int]:
        """Give the number of rows read so far, now and then; TableError holds all findings."""
        try:
            self.table = open_table(
                self._file,
                answers=self._answers,
                on_repair=self._files.add_repair if self._files else None,
                max_rows=self._needs.max_rows,
            )
        except NeedsAnswer as needed:
            self.result = _unread(needed.question)
            return
        yield from self._read(self.table)

    def _read(self, table: Table) -> Iterator[int]:
        needs, header = self._needs, table.header
        known = suggest_columns(header, needs.names, remembered=needs.remembered)
        columns = {
            name: column
            for name, column in known.items()
            if name in map_columns(header, needs.names) or name in needs.remembered
        }
        log = FindingLog()
        look = HeaderLook(header)
        check = ValueCheck(columns, log, optional=needs.optional, terms=needs.terms)
        for row in table.rows():
            look.feed(row.cells)
            if columns:
                cells = dict(zip(header, row.cells, strict=True))
                check.feed(UploadRow(number=row.number, line=row.line, cells=cells))
            if self._files is not None:
                self._files.add_row(row)
            if look.row_count % STEP_ROWS == 0:
                yield look.row_count
        check.finish()
        asks_header = HEADER not in self._answers and is_unknown_header(header, needs.names)
        self._report(table, columns, look, asks_header=asks_header, log=log)
        questions = self._questions(table, known.values())
        if asks_header:
            questions.insert(0, ask_header(header, look))
        self.result = Checked(
            header=header,
            row_count=look.row_count,
            findings=(*table.findings, *log.findings()),
            questions=tuple(questions),
            reading=table.source.to_dict(),
            repair_count=table.repair_count,
            is_open=any(q.is_required and q.question_id not in self._answers for q in questions),
        )

    def _report(
        self,
        table: Table,
        columns: Mapping[str, str],
        look: HeaderLook,
        *,
        asks_header: bool,
        log: FindingLog,
    ) -> None:
        """Raise TableError when there is an error, else warn of columns that are not there."""
        untyped = [name for name in self._needs.names if name not in self._needs.typed]
        found = [*table.findings, *log.findings()]
        if any(item.severity is Severity.ERROR for item in found):
            first = FindingLog()
            if asks_header and look.is_like_data:
                report_missing_header(first, table.header, self._needs.names)
            raise TableError([*first.findings(), *found])
        report_columns(log, table.header, columns, untyped)

    def _questions(self, table: Table, columns: Collection[str]) -> list[Question]:
        questions = table.questions(columns)
        if table.source.is_guess:
            readings = list_readings(self._file)
            if len(readings) > 1:
                questions.insert(0, _ask_encoding(readings, table.source.to_dict()["encoding"]))
        return questions


def _ask_encoding(readings: Mapping[str, str], current: str) -> Question:
    return Question(
        question_id=ENCODING,
        text="The file does not say how its letters are stored. Which line reads right?",
        choices=tuple(
            Choice(value=encoding, label=_ENCODING_NAMES[encoding], example=text[:80])
            for encoding, text in readings.items()
        ),
        preset=current,
        is_required=False,
    )


def _unread(question: Question) -> Checked:
    return Checked(
        header=(),
        row_count=0,
        findings=(),
        questions=(question,),
        reading={"format": "xlsx"},
        repair_count=0,
        is_open=True,
    )


def check_table(
    file: BinaryIO,
    *,
    names: Sequence[str],
    typed: Collection[str] = (),
    optional: Collection[str] = (),
) -> tuple[Table, int, list[TableFinding]]:
    """Read the whole table against the placeholders' names; gives its rows' number and findings.

    `typed` have values without it, `optional` may stay empty. TableError with all findings when
    one is an error, or when a person would have to answer a question first.
    """
    reading = TablePass(file, Needs(names=names, typed=typed, optional=optional))
    for _ in reading.steps():
        pass
    checked, table = reading.result, reading.table
    if table is None or checked is None or checked.is_open:
        raise _asks(checked, names)
    return table, checked.row_count, list(checked.findings)


def _asks(checked: Checked | None, names: Sequence[str]) -> TableError:
    log = FindingLog()
    if checked is not None and checked.header:
        report_missing_header(log, checked.header, names)
    for question in checked.questions if checked else ():
        if question.is_required:
            choices = ", ".join(choice.label for choice in question.choices)
            log.error("question", f"{question.text} ({choices}) Upload it in the dashboard to say.")
    return TableError(log.findings())
