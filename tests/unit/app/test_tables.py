"""Tables as people export them: read right, mended where safe, refused with the place."""

from __future__ import annotations

import csv
import io
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.workspace import DEFAULT_MAX_VARIANTS
from app.paths import ROOT
from app.services.table_dialect import Dialect
from app.services.table_findings import MAX_PER_CODE, Severity, TableError, TableFinding
from app.services.tables import Table, TableRow, open_table

FILES = ROOT / "tests" / "data" / "csv"
HEADER = ("row_id", "geography", "audience", "backdrop")
NAMES = ("geography", "audience", "backdrop")
PARIS = ("1", "Paris", "young runners", "beach")
ROME = ("2", "Rome", "families", "desert")


def read(name: str) -> tuple[Table, list[TableRow]]:
    with (FILES / name).open("rb") as stream:
        table = open_table(stream)
        return table, list(table.rows())


def read_text(text: str) -> tuple[Table, list[TableRow]]:
    table = open_table(io.BytesIO(text.encode()))
    return table, list(table.rows())


def cells(rows: list[TableRow]) -> list[tuple[str, ...]]:
    return [row.cells for row in rows]


def found(table: Table, code: str) -> TableFinding:
    return next(item for item in table.findings if item.code == code)


def refusal(name: str) -> TableFinding:
    with pytest.raises(TableError) as caught:
        read(name)
    (finding,) = caught.value.findings
    return finding


@pytest.mark.parametrize(
    ("name", "encoding", "delimiter"),
    [
        ("bom.csv", "utf-8-sig", ","),
        ("utf16.csv", "utf-16", "\t"),
        ("utf16_without_mark.csv", "utf-16-le", ","),
    ],
)
def test_an_encoding_with_marks_is_read_as_such(name: str, encoding: str, delimiter: str) -> None:
    table, rows = read(name)
    assert (table.source.to_dict()["encoding"], table.source.to_dict()["delimiter"]) == (
        encoding,
        delimiter,
    )
    assert table.header == HEADER
    assert cells(rows) == [
        ("1", "Zürich", "young runners", "beach"),
        ("2", "Paris", "families", "desert"),
    ]
    (finding,) = table.findings
    assert finding.severity is Severity.REPAIR
    assert finding.code == ("byte_order_mark" if encoding == "utf-8-sig" else "encoding")


@pytest.mark.parametrize(
    ("name", "encoding", "geography"),
    [
        ("windows_1252.csv", "cp1252", "Zürich"),
        ("windows_1250.csv", "cp1250", "Łódź"),
        ("shift_jis.csv", "shift_jis", "東京"),
    ],
)
def test_an_old_encoding_is_guessed_and_a_value_is_shown_to_check(
    name: str, encoding: str, geography: str
) -> None:
    table, rows = read(name)
    assert table.source.to_dict()["encoding"] == encoding
    assert rows[0].cells[1] == geography
    finding = found(table, "guessed_encoding")
    assert (finding.severity, finding.row, finding.line) == (Severity.WARNING, 1, 2)
    assert geography in finding.message
    assert [item.code for item in table.findings] == ["guessed_encoding", "encoding"]


def test_damaged_utf8_names_the_cell() -> None:
    table, rows = read("damaged_utf8.csv")
    finding = found(table, "damaged_text")
    assert (finding.row, finding.line, finding.column) == (3, 4, "geography")
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("name", "delimiter"),
    [("semicolon.csv", ";"), ("tab.csv", "\t"), ("bar.csv", "|"), ("crlf.csv", ",")],
)
def test_the_delimiter_is_found(name: str, delimiter: str) -> None:
    table, rows = read(name)
    assert table.source.to_dict()["delimiter"] == delimiter
    assert table.header == HEADER
    assert cells(rows) == [PARIS, ROME]
    assert table.findings == []


def test_commas_inside_semicolon_rows_do_not_win_against_known_names() -> None:
    table, _ = read("semicolon_with_commas.csv")
    assert table.source.to_dict()["delimiter"] == ";"
    assert table.header == ("row_id", "geography", "audience")


def test_a_separator_line_is_obeyed_and_skipped() -> None:
    table, rows = read("sep_line.csv")
    assert table.source.to_dict()["delimiter"] == ";"
    assert table.header == HEADER
    assert [(row.cells, row.number, row.line) for row in rows] == [(PARIS, 1, 3)]


def test_line_breaks_and_quotes_inside_a_cell_are_kept_and_lines_counted() -> None:
    table, rows = read("quoted_newlines.csv")
    assert [(row.number, row.line) for row in rows] == [(1, 2), (2, 4)]
    assert rows[0].cells[2:] == ("young\nrunners", 'a "wide" beach, at dawn')
    assert rows[1].cells[3] == "desert\nat noon"
    (finding,) = table.findings
    assert (finding.code, finding.before, finding.after) == (
        "line_end",
        "desert\r\nat noon",
        "desert\nat noon",
    )


def test_line_ends_of_old_macs_are_understood() -> None:
    _, rows = read("cr_only.csv")
    assert [(row.cells, row.line) for row in rows] == [(PARIS, 2), (ROME, 3)]


def test_blank_rows_are_skipped_and_counted() -> None:
    table, rows = read("blank_lines.csv")
    assert table.header == HEADER
    assert [(row.cells, row.number, row.line) for row in rows] == [(PARIS, 1, 5), (ROME, 2, 8)]
    finding = found(table, "blank_row")
    assert finding.severity is Severity.REPAIR
    assert "7 times" in finding.message


def test_blanks_around_names_and_values_are_trimmed_and_reported() -> None:
    table, rows = read("padded.csv")
    assert table.header == ("Row ID", "Geography", "audience", "backdrop")
    assert cells(rows) == [PARIS, ROME]
    finding = found(table, "trimmed")
    assert (finding.row, finding.line, finding.column) == (1, 2, "Geography")
    assert "3 times" in finding.message


def test_a_duplicate_header_is_refused_naming_both_columns() -> None:
    table, _ = read("duplicate_header.csv")
    finding = found(table, "duplicate_column")
    assert "columns 2 and 4" in finding.message
    assert (finding.severity, finding.line, finding.column) == (Severity.ERROR, 1, "city")


def test_each_ragged_row_is_named_with_row_and_line() -> None:
    table, rows = read("ragged.csv")
    ragged = [item for item in table.findings if item.code == "ragged_row"]
    assert [(item.row, item.line) for item in ragged] == [(3, 5), (4, 6)]
    assert "has 3 cells, the header has 4" in ragged[0].message
    assert "a cell that contains a comma" in ragged[1].message
    assert str(ragged[0]).startswith("Row 3 (line 5): this row has 3 cells")
    assert len(rows) == 2


def test_a_header_alone_is_an_error() -> None:
    table, rows = read("header_only.csv")
    assert rows == []
    assert found(table, "no_rows").severity is Severity.ERROR


@pytest.mark.parametrize("name", ["empty.csv", "blank.csv"])
def test_an_empty_file_is_refused(name: str) -> None:
    assert "the file is empty" in refusal(name).message


def test_a_header_in_the_middle_is_skipped() -> None:
    table, rows = read("repeated_header.csv")
    assert cells(rows) == [PARIS, ROME]
    assert found(table, "repeated_header").line == 3


def test_a_column_without_a_name_is_refused_but_empty_ones_at_the_end_are_not() -> None:
    table, _ = read("unnamed_column.csv")
    assert "column 3 has no name" in found(table, "unnamed_column").message
    table, rows = read("trailing_columns.csv")
    assert table.header == ("row_id", "geography")
    assert cells(rows) == [("1", "Paris"), ("2", "Rome")]
    assert table.findings == []


def test_a_value_of_ten_thousand_characters_is_refused_naming_row_line_and_column() -> None:
    table, rows = read("long_value.csv")
    finding = found(table, "long_value")
    assert (finding.row, finding.line, finding.column) == (2, 3, "backdrop")
    assert "10,000 characters" in finding.message
    assert cells(rows) == [PARIS]


def test_nul_bytes_are_refused_naming_the_cell() -> None:
    table, _ = read("nul_bytes.csv")
    finding = found(table, "nul_byte")
    assert (finding.row, finding.line, finding.column) == (1, 2, "audience")


def test_cells_that_look_like_formulas_stay_text() -> None:
    table, rows = read("formulas.csv")
    assert rows[0].cells == ("1", "=1+1", "+49 30", "@home")
    assert rows[1].cells[1:] == ('=HYPERLINK("http://example.com","x")', "-5", "|cmd")
    assert table.findings == []


def test_an_unclosed_quote_is_refused_at_the_row_where_it_opens() -> None:
    finding = refusal("unclosed_quote.csv")
    assert (finding.code, finding.line) == ("unclosed_quote", 3)


def test_row_ids_must_differ() -> None:
    table, rows = read("duplicate_row_id.csv")
    finding = found(table, "duplicate_row_id")
    assert (finding.row, finding.line, finding.column) == (3, 4, "row_id")
    assert "row 1" in finding.message
    assert len(rows) == 2


def test_a_single_column_needs_no_delimiter() -> None:
    table, rows = read("single_column.csv")
    assert table.header == ("geography",)
    assert cells(rows) == [("Paris",), ("Rome",)]


def test_a_quoted_empty_value_of_a_single_column_is_a_row_and_a_blank_line_is_not() -> None:
    table, rows = read_text('geography\n""\n\nParis\n  \n"  "\n')
    assert [(row.cells, row.number, row.line) for row in rows] == [
        (("",), 1, 2),
        (("Paris",), 2, 4),
        (("",), 3, 6),
    ]
    assert "2 times" in found(table, "blank_row").message


def test_a_workbook_is_refused_with_the_way_out() -> None:
    assert "CSV UTF-8" in refusal("workbook.csv").message


def test_all_findings_are_there_at_once_but_their_number_is_bounded() -> None:
    table, _ = read_text("a,b\n" + "x\n" * 500 + "1,\x00\n")
    ragged = [item for item in table.findings if item.code == "ragged_row"]
    assert len(ragged) == MAX_PER_CODE
    assert found(table, "nul_byte").row == 501
    assert found(table, "ragged_row_more").message == "and 450 more like the 50 above"


def test_a_table_that_is_too_long_is_refused() -> None:
    table, rows = read_text("a\n" + "x\n" * (DEFAULT_MAX_VARIANTS + 1))
    assert len(rows) == DEFAULT_MAX_VARIANTS
    assert found(table, "too_many_rows").row == DEFAULT_MAX_VARIANTS + 1


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    stream = io.BytesIO(b"a,b\n" + b"x" * 3_000_000)
    with pytest.raises(TableError) as caught:
        list(open_table(stream).rows())
    assert caught.value.findings[0].code == "long_line"


def test_rows_are_read_in_flat_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("w") as file:
        file.write("geography,audience,backdrop\n")
        file.writelines(f"city {n},group {n % 7},place {n % 11}\n" for n in range(20_000))
    with path.open("rb") as stream:
        tracemalloc.start()
        table = open_table(stream, max_rows=20_000)
        number = sum(1 for _ in table.rows())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert number == 20_000
    assert peak < 3 * 1024 * 1024
    assert table.findings == []


def test_an_upload_that_is_spooled_to_disk_can_be_read_twice() -> None:
    with tempfile.SpooledTemporaryFile(max_size=10) as stream:
        stream.write((FILES / "bom.csv").read_bytes())
        table = open_table(stream)
        assert cells(list(table.rows())) == cells(list(table.rows()))


def test_a_stored_dialect_reads_the_same() -> None:
    with (FILES / "windows_1252.csv").open("rb") as stream:
        table = open_table(stream)
        dialect = Dialect.from_dict(table.source.to_dict())
        assert dialect.to_dict() == table.source.to_dict()
        assert cells(list(open_table(stream, dialect=dialect).rows())) == cells(list(table.rows()))


def test_a_finding_survives_storage() -> None:
    finding = TableFinding(
        severity=Severity.ERROR, code="x", message="m", row=1, line=2, column="c"
    )
    assert TableFinding.from_dict(finding.to_dict()) == finding


@given(
    st.lists(
        st.lists(st.text(alphabet='ab ,;"\n\té=', max_size=6), min_size=3, max_size=3),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_the_standard_writer_writes_is_read_back(rows: list[list[str]]) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(["one", "two", "three"])
    writer.writerows(rows)
    table = open_table(io.BytesIO(buffer.getvalue().encode()))
    expected = [tuple(cell.strip() for cell in row) for row in rows]
    assert cells(list(table.rows())) == [row for row in expected if any(row)]
