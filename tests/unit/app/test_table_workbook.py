"""Workbooks: typed text out of cells, one sheet chosen, merged cells and bombs refused."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any

import pytest
from openpyxl import Workbook
from openpyxl.worksheet.worksheet import Worksheet

from app.services import table_package
from app.services.table_findings import TableError, TableFinding
from app.services.table_workbook import NeedsAnswer
from app.services.tables import Table, TableRow, open_table

HEADER = ("row_id", "geography", "audience", "backdrop")


def build(
    *rows: Sequence[Any], change: Callable[[Worksheet], None] | None = None, more: int = 0
) -> bytes:
    """A workbook with the header and these rows on its first sheet, and `more` sheets like it."""
    book = Workbook()
    for number in range(more + 1):
        sheet = book.active if number == 0 else book.create_sheet(f"Sheet {number + 1}")
        for row in (HEADER, *rows):
            sheet.append(row)
    if change is not None:
        change(book.worksheets[0])
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def read(content: bytes, **answers: str) -> tuple[Table, list[TableRow]]:
    table = open_table(io.BytesIO(content), answers=answers)
    return table, list(table.rows())


def refusal(content: bytes) -> TableFinding:
    with pytest.raises(TableError) as caught:
        read(content)
    return caught.value.findings[0]


def edit_part(content: bytes, part: str, edit: Callable[[bytes], bytes]) -> bytes:
    """The package with one of its parts rewritten."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w", 8) as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, edit(data) if name == part else data)
    return buffer.getvalue()


def test_numbers_dates_and_truth_become_text_as_they_were_typed() -> None:
    def formats(sheet: Worksheet) -> None:
        sheet["B2"].number_format = "00000"
        sheet["C3"].number_format = "0%"

    table, rows = read(
        build(
            (1, 7307, 1.5, date(2025, 2, 1)),
            (2.0, True, 0.15, datetime(2025, 2, 1, 9, 30)),
            ("03", "07307", -2, None),
            change=formats,
        )
    )
    assert table.header == HEADER
    assert [row.cells for row in rows] == [
        ("1", "07307", "1.5", "2025-02-01"),
        ("2", "TRUE", "15%", "2025-02-01 09:30"),
        ("03", "07307", "-2", ""),
    ]
    assert [(row.number, row.line) for row in rows] == [(1, 2), (2, 3), (3, 4)]
    assert table.findings == []


def test_merged_cells_are_refused_with_their_address() -> None:
    content = build(
        (1, "Paris", "runners", "beach"),
        (2, "Rome", "families", "desert"),
        change=lambda sheet: sheet.merge_cells("B2:B3"),
    )
    finding = refusal(content)
    assert finding.code == "merged_cells"
    assert "B2:B3 on the sheet “Sheet” are merged" in finding.message


def test_a_workbook_with_several_sheets_asks_which_one_and_reads_it() -> None:
    content = build((1, "Paris", "runners", "beach"), more=1)
    with pytest.raises(NeedsAnswer) as asked:
        read(content)
    question = asked.value.question
    assert [choice.value for choice in question.choices] == ["Sheet", "Sheet 2"]
    assert question.choices[0].example == ", ".join(HEADER)
    table, rows = read(content, sheet="Sheet 2")
    assert table.source.to_dict() == {"format": "xlsx", "sheet": "Sheet 2"}
    assert len(rows) == 1


def test_empty_and_hidden_sheets_are_no_question() -> None:
    book = Workbook()
    for row in (HEADER, (1, "Paris", "runners", "beach")):
        book.active.append(row)
    book.create_sheet("Empty")
    hidden = book.create_sheet("Lists")
    hidden.append(["Paris"])
    hidden.sheet_state = "hidden"
    buffer = io.BytesIO()
    book.save(buffer)
    assert len(read(buffer.getvalue())[1]) == 1


def test_a_formula_gives_the_value_it_was_saved_with_and_is_listed() -> None:
    content = build((1, '="Par"&"is"', "runners", "beach"))
    cached = edit_part(
        content,
        "xl/worksheets/sheet1.xml",
        lambda data: re.sub(
            rb'<c r="B2"[^>]*>.*?</c>',
            b'<c r="B2" t="str"><f>"Par"&amp;"is"</f><v>Paris</v></c>',
            data,
        ),
    )
    table, rows = read(cached)
    assert rows[0].cells[1] == "Paris"
    (finding,) = table.findings
    assert (finding.code, finding.line, finding.after) == ("formula_value", 2, "Paris")
    assert finding.before == '="Par"&"is"'
    assert "B2" in finding.message


def test_a_formula_without_a_saved_value_is_named() -> None:
    table, _ = read(build((1, "=A1&A2", "runners", "beach")))
    finding = next(item for item in table.findings if item.code == "formula_without_value")
    assert "the cell B2 holds =A1&A2, whose result was never saved" in finding.message
    assert finding.line == 2


def test_an_error_in_a_cell_is_named() -> None:
    table, _ = read(build((1, "#REF!", "runners", "beach")))
    (finding,) = table.findings
    assert (finding.code, finding.line) == ("cell_error", 2)
    assert "the cell B2 holds the error #REF!" in finding.message


def test_a_number_that_lost_its_digits_is_named() -> None:
    table, _ = read(build((1, 1234567890123456789, "runners", "beach")))
    (finding,) = table.findings
    assert (finding.code, finding.line) == ("lost_digits", 2)
    assert "the cell B2" in finding.message


def test_rows_that_are_shorter_or_empty_are_no_fault_of_a_sheet() -> None:
    table, rows = read(build((1, "Paris"), (), (2, None, None, "beach"), (None, None)))
    assert [row.cells for row in rows] == [("1", "Paris", "", ""), ("2", "", "", "beach")]
    assert [row.line for row in rows] == [2, 4]
    assert table.findings == []


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_package, "MAX_UNPACKED_BYTES", 8 * 2**20)
    buffer = io.BytesIO(build((1, "Paris", "runners", "beach")))
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as package:
        package.writestr("xl/worksheets/sheet9.xml", b"\0" * (12 * 2**20))
    assert len(buffer.getvalue()) < 64 * 1024
    finding = refusal(buffer.getvalue())
    assert finding.code == "too_large"
    assert "would take 12 MB, and 8 MB are allowed" in finding.message


def test_a_part_that_is_read_as_a_whole_has_a_limit_of_its_own() -> None:
    content = edit_part(
        build((1, "Paris", "runners", "beach")),
        "xl/styles.xml",
        lambda data: data + b" " * table_package.MAX_PART_BYTES,
    )
    assert "its part xl/styles.xml" in refusal(content).message


def test_entities_are_refused() -> None:
    content = edit_part(
        build((1, "Paris", "runners", "beach")),
        "xl/workbook.xml",
        lambda data: b'<!DOCTYPE x [<!ENTITY a "b">]>' + data,
    )
    assert refusal(content).code == "unsafe_workbook"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"content.xml": b"x"}, "an OpenDocument spreadsheet"),
        ({"xl/workbook.bin": b"x"}, "a binary Excel workbook"),
        ({"notes.txt": b"x"}, "a ZIP archive, not a workbook"),
        ({"xl/workbook.xml": b"<broken"}, "damaged"),
    ],
)
def test_other_packages_are_refused_by_name(parts: dict[str, bytes], message: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        for name, data in parts.items():
            package.writestr(name, data)
    assert message in refusal(buffer.getvalue()).message


def test_a_sheet_that_is_cut_off_is_refused() -> None:
    content = edit_part(
        build((1, "Paris", "runners", "beach")),
        "xl/worksheets/sheet1.xml",
        lambda data: data[: len(data) // 2],
    )
    assert refusal(content).code == "damaged_workbook"
