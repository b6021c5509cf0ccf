"""Every hazard of real spreadsheets with a file of its own: mended, asked, warned of, refused."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.paths import ROOT
from app.services.table_files import TableFiles, export_csv, read_mended, read_repairs
from app.services.table_findings import TableError
from app.services.table_pass import Checked, Needs, TablePass

FILES = ROOT / "tests" / "data" / "csv"
NAMES = ("geography", "audience", "backdrop")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is to come of a file: `codes` of what is found, what is asked, cells of row 1."""

    refused: str = ""
    codes: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    is_open: bool = False
    cells: dict[str, str] = field(default_factory=dict)


MENDED = {"geography": "Paris"}
OUTCOMES = {
    "bom.csv": Outcome(codes=("byte_order_mark",), cells={"row_id": "1", "geography": "Zürich"}),
    "utf16.csv": Outcome(codes=("encoding",), cells={"geography": "Zürich"}),
    "utf16_without_mark.csv": Outcome(codes=("encoding",), cells={"geography": "Zürich"}),
    "utf16_ascii_big_endian.csv": Outcome(codes=("encoding",), cells=MENDED),
    "windows_1252.csv": Outcome(
        codes=("guessed_encoding", "encoding"), asked=("encoding",), cells={"geography": "Zürich"}
    ),
    "windows_1250.csv": Outcome(
        codes=("guessed_encoding", "encoding"), asked=("encoding",), cells={"geography": "Łódź"}
    ),
    "damaged_utf8.csv": Outcome(refused="Row 3 (line 4), column “geography”: a letter could not"),
    "semicolon.csv": Outcome(cells=MENDED),
    "tab.csv": Outcome(cells=MENDED),
    "brand_new.tsv": Outcome(cells={"audience": "runners, young"}),
    "semicolon_with_commas.csv": Outcome(codes=("missing_column",)),
    "header_one_short.csv": Outcome(refused="this row has 4 cells, the header has 3"),
    "sep_line.csv": Outcome(codes=("separator_line",), cells=MENDED),
    "cr_only.csv": Outcome(cells=MENDED),
    "padded.csv": Outcome(codes=("trimmed", "trimmed_name"), cells={"Geography": "Paris"}),
    "duplicate_header.csv": Outcome(refused="columns 2 and 4 have the same name"),
    "ragged.csv": Outcome(refused="Row 3 (line 5): this row has 3 cells, the header has 4"),
    "blank_lines.csv": Outcome(codes=("blank_row",), cells=MENDED),
    "total_row.csv": Outcome(refused="Row 2 (line 3), column “geography”: there is no value"),
    "zip_lost_zero.csv": Outcome(asked=("zip:zip_code",)),
    "zip_not_us.csv": Outcome(),
    "zip_kept.csv": Outcome(cells={"geography": "07307"}),
    "exponent.csv": Outcome(refused="Row 1 (line 2), column “geography”: the spreadsheet kept"),
    "exponent_row_id.csv": Outcome(refused="Row 1 (line 2), column “row_id”: the id '9.45E+12'"),
    "long_number.csv": Outcome(refused="kept only the first digits"),
    "long_id_kept.csv": Outcome(cells={"row_id": "1234567890123456789"}),
    "text_as_date.csv": Outcome(codes=("date_like",), cells={"audience": "9-Sep"}),
    "ambiguous_dates.csv": Outcome(asked=("date:backdrop",), is_open=True),
    "day_first_dates.csv": Outcome(asked=("date:backdrop",), is_open=True),
    "contradicting_dates.csv": Outcome(asked=("date:backdrop",), is_open=True),
    "iso_dates.csv": Outcome(cells={"backdrop": "2025-02-01"}),
    "dates_beside.csv": Outcome(asked=("date:start_date",), cells={"start_date": "01/02/25"}),
    "decimal_comma.csv": Outcome(asked=("number:audience",), is_open=True),
    "thousands_comma.csv": Outcome(asked=("number:audience",), is_open=True),
    "smart_quotes.csv": Outcome(codes=("same_values",), cells={"audience": "“young” runners"}),
    "invisible_spaces.csv": Outcome(
        codes=("invisible_space",), cells={"geography": "New York", "audience": "youngrunners"}
    ),
    "decomposed.csv": Outcome(codes=("composed",), cells={"geography": "Zürich"}),
    "emoji_joiner.csv": Outcome(cells={"audience": "👩\u200d🚀 fans"}),
    "quoted_newlines.csv": Outcome(codes=("line_end",), cells={"audience": "young\nrunners"}),
    "control_character.csv": Outcome(refused="Row 1 (line 2), column “geography”: there is an inv"),
    "nul_bytes.csv": Outcome(refused="Row 1 (line 2), column “audience”: this value holds a NUL"),
    "formulas.csv": Outcome(cells={"geography": "=1+1"}),
    "neutralised.csv": Outcome(codes=("quote_mark",), cells={"geography": "=1+1"}),
    "headerless.csv": Outcome(codes=("no_known_column",), asked=("header",), is_open=True),
    "numbers_as_header.csv": Outcome(codes=("no_known_column",), asked=("header",), is_open=True),
    "foreign_names.csv": Outcome(codes=("no_known_column",), asked=("header",), is_open=True),
    "repeated_header.csv": Outcome(codes=("repeated_header",), cells=MENDED),
    "same_values.csv": Outcome(codes=("same_values",), cells=MENDED),
    "duplicate_row_id.csv": Outcome(refused="Row 3 (line 4), column “row_id”"),
    "long_value.csv": Outcome(refused="Row 2 (line 3), column “backdrop”: this value has 10,000"),
    "unclosed_quote.csv": Outcome(refused="Line 3: a double quote is opened here"),
    "header_only.csv": Outcome(refused="no row below it"),
    "empty.csv": Outcome(refused="the file is empty"),
    "fake_csv.csv": Outcome(refused="this is a PDF file; in your spreadsheet save it as XLSX"),
    "old_excel.xls": Outcome(refused="an old Excel workbook"),
}


def read(
    name: str, folder: Path, answers: dict[str, str] | None = None
) -> tuple[Checked, TableFiles]:
    files = TableFiles(folder)
    with (FILES / name).open("rb") as file, files:
        reading = TablePass(file, Needs(names=NAMES), answers=answers, files=files)
        for _ in reading.steps():
            pass
    assert reading.result is not None
    return reading.result, files


@pytest.mark.parametrize("name", OUTCOMES)
def test_each_hazard_has_its_outcome(name: str, tmp_path: Path) -> None:
    expected = OUTCOMES[name]
    if expected.refused:
        with pytest.raises(TableError) as caught:
            read(name, tmp_path)
        assert expected.refused.casefold() in caught.value.message.casefold()
        return
    checked, files = read(name, tmp_path)
    assert {item.code for item in checked.findings} == set(expected.codes)
    assert tuple(item.question_id for item in checked.questions) == expected.asked
    assert checked.is_open is expected.is_open
    with files.table.open("rb") as file:
        first = next(read_mended(file, checked.header)).cells
    assert {column: first[column] for column in expected.cells} == expected.cells


def test_every_file_of_the_hostile_set_is_looked_at() -> None:
    looked_at_elsewhere = {
        "bar.csv",
        "blank.csv",
        "crlf.csv",
        "shift_jis.csv",
        "single_column.csv",
        "trailing_columns.csv",
        "unnamed_column.csv",
        "workbook.csv",
    }
    assert {path.name for path in FILES.iterdir()} == {*OUTCOMES, *looked_at_elsewhere}


@pytest.mark.parametrize(
    ("name", "answer", "column", "values"),
    [
        ("ambiguous_dates.csv", "day_first", "backdrop", ["2025-02-01", "2025-04-03"]),
        ("ambiguous_dates.csv", "month_first", "backdrop", ["2025-01-02", "2025-03-04"]),
        ("ambiguous_dates.csv", "keep", "backdrop", ["01/02/25", "03/04/25"]),
        ("day_first_dates.csv", "day_first", "backdrop", ["2025-02-01", "2025-12-31"]),
        ("decimal_comma.csv", "decimal", "audience", ["1.5", "22.75"]),
        ("thousands_comma.csv", "thousands", "audience", ["1500", "12000"]),
        ("thousands_comma.csv", "decimal", "audience", ["1.500", "12.000"]),
        ("zip_lost_zero.csv", "pad", "zip_code", ["07307", "10001"]),
    ],
)
def test_an_answer_is_applied_to_its_column_and_each_change_is_listed(
    name: str, answer: str, column: str, values: list[str], tmp_path: Path
) -> None:
    (question,) = read(name, tmp_path)[0].questions
    checked, files = read(name, tmp_path, {question.question_id: answer})
    assert not checked.is_open
    with files.table.open("rb") as file:
        rows = list(read_mended(file, checked.header))
    assert [row.cells[column] for row in rows] == values
    with files.repairs.open("rb") as file:
        listed = {item["after"] for item in read_repairs(file) if item["column"] == column}
    assert listed == (set() if answer == "keep" else {*values} - {"10001"})


def test_dates_that_contradict_an_answer_are_named(tmp_path: Path) -> None:
    with pytest.raises(TableError) as caught:
        read("contradicting_dates.csv", tmp_path, {"date:backdrop": "day_first"})
    assert "Row 2 (line 3), column “backdrop”: '02/13/2025' does not fit" in caught.value.message


def test_a_date_that_can_only_be_read_one_way_presets_the_answer(tmp_path: Path) -> None:
    presets = {
        name: read(name, tmp_path)[0].questions[0].preset
        for name in ("ambiguous_dates.csv", "day_first_dates.csv", "contradicting_dates.csv")
    }
    assert presets == {
        "ambiguous_dates.csv": None,
        "day_first_dates.csv": "day_first",
        "contradicting_dates.csv": None,
    }


def test_repairs_are_listed_cell_by_cell_with_row_line_column_before_after_and_why(
    tmp_path: Path,
) -> None:
    _, files = read("padded.csv", tmp_path)
    with files.repairs.open("rb") as file:
        repairs = list(read_repairs(file))
    cells = [item for item in repairs if item["row"]]
    assert len(cells) == 3
    assert (cells[0]["row"], cells[0]["line"], cells[0]["column"]) == ("1", "2", "Geography")
    assert cells[0]["before"].strip() != cells[0]["before"]
    assert (cells[0]["after"], cells[0]["why"]) == ("Paris", "blanks around a value were removed")


def test_an_export_never_runs_as_a_formula_and_leaves_numbers_alone() -> None:
    row = ["=1+1", "+49 30", "-5", "-5,5", "+1.5%", "@home", "\tx", "a=b", "-x"]
    text = b"".join(export_csv(["=name"], [row])).decode("utf-8-sig")
    header, cells = csv.reader(io.StringIO(text))
    assert header == ["'=name"]
    assert cells == ["'=1+1", "'+49 30", "-5", "-5,5", "+1.5%", "'@home", "'\tx", "a=b", "'-x"]
