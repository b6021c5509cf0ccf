"""The rows of one sheet of an XLSX workbook as typed text, streamed and within limits."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, time, timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from app.services.table_cells import LOST_DIGITS
from app.services.table_findings import FindingLog, TableError, fail
from app.services.table_package import check_package, find_merged_cells, has_formulas
from app.services.table_questions import SHEET, Choice, Question

if TYPE_CHECKING:
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

# Beyond this a double has dropped digits.
_EXACT_NUMBER: Final = 10**15
_ISO_MIDNIGHT: Final = time(0)


class NeedsAnswer(Exception):  # noqa: N818 - a question, not an error
    """The table cannot be read before a person has answered `question`."""

    def __init__(self, question: Question) -> None:
        self.question = question
        super().__init__(question.text)


class WorkbookSource:
    """One sheet of a workbook, which can be read more than once; the stream must be seekable."""

    is_guess = False
    delimiter_name = "a comma"

    def __init__(self, stream: BinaryIO, *, sheet: str | None = None) -> None:
        """TableError for a workbook that cannot be read; NeedsAnswer where a sheet is missing."""
        check_package(stream)
        self._stream = stream
        self.sheet, self._path = self._choose(sheet)
        merged = find_merged_cells(stream, self._path)
        if merged:
            shown = ", ".join(merged[:5]) + (f" and {len(merged) - 5} more" if merged[5:] else "")
            message = (
                f"the cells {shown} on the sheet “{self.sheet}” are merged, so it is not certain"
                " which row each value belongs to; unmerge them and fill every cell"
            )
            raise fail("merged_cells", message)

    def to_dict(self) -> dict[str, str]:
        return {"format": "xlsx", "sheet": self.sheet}

    def records(self, log: FindingLog) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not blank, all as wide as the first one if they can be."""
        width = 0
        for number, texts in enumerate(self._read(log), 1):
            while texts and not texts[-1].strip():
                texts.pop()
            if not texts:
                # Empty rows below the table are part of every sheet.
                continue
            width = width or len(texts)
            yield number, texts + [""] * (width - len(texts))

    def _choose(self, wanted: str | None) -> tuple[str, str]:
        """Title of the sheet to read, and its part of the package."""
        book = self._open(data_only=True)
        with closing(book):
            sheets = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
            found = {sheet.title: sheet for sheet in sheets if _has_values(sheet)}
            if not found:
                raise fail("empty", "no sheet of this workbook has any values")
            if wanted not in found and len(found) > 1:
                raise NeedsAnswer(_ask_sheet(found))
            title = wanted if wanted in found else next(iter(found))
            return str(title), str(found[title]._worksheet_path)

    def _open(self, *, data_only: bool) -> Any:
        # Local imports, here and below: openpyxl brings numpy and Pillow into the web processes.
        from openpyxl import load_workbook
        from openpyxl.utils.exceptions import InvalidFileException

        self._stream.seek(0)
        try:
            return load_workbook(
                self._stream, read_only=True, data_only=data_only, keep_links=False
            )
        except (InvalidFileException, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
            raise _unreadable(error) from None
        except SyntaxError as error:  # what ElementTree's ParseError is
            raise _unreadable(error) from None

    def _read(self, log: FindingLog) -> Iterator[list[str]]:
        values = self._open(data_only=True)
        with closing(values):
            rows = _rows(values[self.sheet])
            if not has_formulas(self._stream, self._path):
                for row in rows:
                    yield [_text(cell, log) for cell in row]
                return
            formulas = self._open(data_only=False)
            with closing(formulas):
                for row, written in zip_longest(rows, _rows(formulas[self.sheet]), fillvalue=()):
                    _report_formulas(row, written, log)
                    yield [_text(cell, log) for cell in row]


def _rows(sheet: ReadOnlyWorksheet) -> Iterator[tuple[Any, ...]]:
    # The dimension that a sheet states is often wrong, and may claim millions of empty cells.
    sheet.reset_dimensions()
    try:
        yield from sheet.iter_rows()
    except (SyntaxError, KeyError, ValueError, IndexError, zipfile.BadZipFile) as error:
        if isinstance(error, TableError):
            raise
        raise _unreadable(error) from None


def _has_values(sheet: ReadOnlyWorksheet) -> bool:
    return any(cell.value is not None for row in _rows(sheet) for cell in row)


def _ask_sheet(sheets: dict[str, ReadOnlyWorksheet]) -> Question:
    choices = []
    for title, sheet in sheets.items():
        first = next((row for row in _rows(sheet) if any(c.value is not None for c in row)), ())
        names = [str(cell.value) for cell in first if cell.value is not None]
        choices.append(Choice(value=title, label=title, example=", ".join(names[:4])[:80]))
    return Question(
        question_id=SHEET,
        text="This workbook has several sheets. Which one holds the rows?",
        choices=tuple(choices),
    )


def _text(cell: Any, log: FindingLog) -> str:
    """The value as a person would type it; what has no such text is an error with its address."""
    value = cell.value
    if isinstance(value, str):
        if cell.data_type == "e":
            _at(log, "cell_error", cell, f"holds the error {value}; correct its formula")
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        if abs(value) >= _EXACT_NUMBER:
            _at(log, "lost_digits", cell, f"has a long number: {LOST_DIGITS.format(value=value)}")
        return _number(value, cell.number_format)
    if isinstance(value, datetime):
        return (
            value.date().isoformat()
            if value.time() == _ISO_MIDNIGHT
            else value.isoformat(" ", "seconds" if value.second else "minutes")
        )
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, timedelta) else str(value or "")


def _number(value: float, number_format: str) -> str:
    """A number as its cell shows it where the format is zeros or a percentage, else plainly."""
    if number_format.strip("0") == "" and number_format and value >= 0 and value == int(value):
        return str(int(value)).zfill(len(number_format))
    if number_format.endswith("%") and set(number_format) <= set("0.%#"):
        return f"{round(value * 100, 10):.15g}%"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return repr(value)


def _report_formulas(row: tuple[Any, ...], written: tuple[Any, ...], log: FindingLog) -> None:
    for cell, source in zip(row, written, strict=False):
        if source.value is None or source.data_type != "f":
            continue
        formula = source.value if isinstance(source.value, str) else "a formula"
        if cell.value is None:
            message = (
                f"holds {formula[:80]}, whose result was never saved; open the workbook in a"
                " spreadsheet and save it, or paste the values"
            )
            _at(log, "formula_without_value", source, message)
        else:
            log.repair(
                "formula_value",
                f"the formula in {_address(source)} was replaced by the value it had when the"
                " workbook was saved",
                line=source.row,
                before=formula,
                after=str(cell.value),
            )


def _at(log: FindingLog, code: str, cell: Any, message: str) -> None:
    log.error(code, f"the cell {_address(cell)} {message}", line=cell.row)


def _address(cell: Any) -> str:
    from openpyxl.utils import get_column_letter

    return f"{get_column_letter(cast(int, cell.column))}{cell.row}"


def _unreadable(error: Exception) -> TableError:
    del error  # openpyxl's messages name parts of the package, which help nobody here
    return fail(
        "damaged_workbook",
        "this workbook is damaged or was not written as XLSX; open it in a spreadsheet and save it"
        " anew, or as “CSV UTF-8”",
    )
