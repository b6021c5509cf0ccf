"""What `adloom demo` is given: checked whole, and refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli.demo_input import DemoInput, DemoTable
from app.cli.main import main


def assert_refused(folder: Path, *options: str, parts: list[str]) -> None:
    """The demo ends with a sentence that holds the parts, and leaves no trace."""
    state_dir = folder / "state"
    result = CliRunner().invoke(main, ["demo", *options, "--state-dir", str(state_dir)])
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    for part in parts:
        assert part in result.output
    assert not state_dir.exists()


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    parts = ["nowhere.csv cannot be read: No such file"]
    assert_refused(tmp_path, "--csv", str(tmp_path / "nowhere.csv"), parts=parts)


@pytest.mark.parametrize(
    ("table", "options", "parts"),
    [
        ("", (), ["table.csv cannot be used as it is", "file is empty"]),
        ("geography,audience,backdrop\n", (), ["no row below it"]),
        ("geography,audience\nParis,families\n", (), ["no column for {{ backdrop }}"]),
        ("geography,audience,backdrop\nParis,,a beach\n", (), ["Row 1 (line 2)", "audience"]),
        ("place\nParis\n", ("--prompt", "shoes in {{ place"), ["{{"]),
        (
            "place\nParis\nRome\n",
            ("--prompt", "shoes in {{ place }}", "--rows", "3"),
            ["table.csv has 2 rows, fewer than --rows 3", "--rows 2 to render them all."],
        ),
        # A fault beyond the rows that are wanted is told, too: a table is used whole or not.
        (
            "place,size\nParis,1\nRome\n",
            ("--prompt", "shoes in {{ place }}", "--rows", "1"),
            ["Row 2 (line 3): this row has 1 cell,"],
        ),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_before_anything_starts(
    tmp_path: Path, table: str, options: tuple[str, ...], parts: list[str]
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(table)
    assert_refused(tmp_path, "--csv", str(path), *options, parts=parts)


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ("9999", "sneaker_world.csv has 280 rows, fewer than --rows 9999. Say --rows 280"),
        ("0", "give a whole number from 1 on, not '0'"),
        ("abc", "'--rows': give a whole number from 1 on, not 'abc'"),
    ],
)
def test_a_number_of_rows_that_cannot_be_rendered_is_refused_before_anything_starts(
    tmp_path: Path, rows: str, part: str
) -> None:
    assert_refused(tmp_path, "--rows", rows, parts=[part])


def test_the_demo_takes_the_first_rows_of_its_own_table_or_of_yours(tmp_path: Path) -> None:
    def read(csv_path: Path | None, rows: int | None) -> DemoTable:
        options = {"csv_path": csv_path, "rows": rows}
        return DemoInput.read(prompt=None, force=False, **options).table  # type: ignore[arg-type]

    assert (read(None, None).row_count, read(None, None).filename) == (24, "sneaker_cities.csv")
    longer = read(None, 25)
    assert (longer.row_count, longer.filename) == (25, "sneaker_world.csv")
    assert len(longer.content.splitlines()) == 26
    yours = tmp_path / "yours.csv"
    yours.write_text("sku;geography;audience;backdrop\nA;Paris;kids;a beach\nB;Oslo;kids;a park\n")
    table = read(yours, 1)
    assert table.content == b"sku,geography,audience,backdrop\r\nA,Paris,kids,a beach\r\n"
    assert (table.columns, table.kept) == (("backdrop", "geography", "audience"), ("sku",))
