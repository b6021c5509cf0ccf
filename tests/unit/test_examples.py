"""The examples: tables and briefs that work as they are, in words that the built-in model knows."""

from __future__ import annotations

import csv
import tomllib
from itertools import product
from pathlib import Path

import pytest

from app.paths import EXAMPLES
from app.services import uploads
from app.services.prompts import parse_prompt
from app.services.tables import Table, TableRow, open_table
from engine import registry
from engine.tiny import vocabulary
from engine.types import GenerationTask, QualityProfile

BRIEFS = sorted((EXAMPLES / "briefs").glob("*.toml"))
ATTRIBUTES = {"geography": "geography", "audience": "audience", "backdrop": "backdrop"}


def read(name: str) -> tuple[Table, list[TableRow]]:
    with (EXAMPLES / name).open("rb") as stream:
        table = open_table(stream)
        return table, list(table.rows())


def columns(name: str) -> list[dict[str, str]]:
    table, rows = read(name)
    return [dict(zip(table.header, row.cells, strict=True)) for row in rows]


@pytest.mark.parametrize("name", ["sneaker_cities.csv", "sneaker_world.csv"])
def test_a_table_needs_no_repair_and_names_what_the_built_in_model_can_show(name: str) -> None:
    table, _ = read(name)
    assert table.header == ("row_id", "geography", "audience", "backdrop", "market")
    assert table.findings == []
    for cells in columns(name):
        for column, attribute in ATTRIBUTES.items():
            words = {word for names in vocabulary.ATTRIBUTES[attribute].values() for word in names}
            assert cells[column].lower().removeprefix("a ") in words


def test_the_demo_is_four_cities_by_three_audiences_by_two_backdrops() -> None:
    rows = columns("sneaker_cities.csv")
    values = {name: list(dict.fromkeys(row[name] for row in rows)) for name in ATTRIBUTES}
    assert [len(given) for given in values.values()] == [4, 3, 2]
    expected = list(product(*values.values()))
    assert [tuple(row[name] for name in ATTRIBUTES) for row in rows] == expected


def test_the_long_table_goes_on_where_the_short_one_ends_without_repeats() -> None:
    short, long = columns("sneaker_cities.csv"), columns("sneaker_world.csv")
    assert long[: len(short)] == short
    assert len({tuple(row[name] for name in ATTRIBUTES) for row in long}) == len(long) == 280


@pytest.mark.parametrize("path", BRIEFS, ids=lambda path: path.stem)
def test_a_brief_fits_its_table_and_a_model(path: Path) -> None:
    brief = tomllib.loads(path.read_text(encoding="utf-8"))
    parsed = parse_prompt(brief["prompt"])
    with (path.parent / brief["table"]).open(newline="", encoding="utf-8") as stream:
        header = next(csv.reader(stream))
    names = [item.name for item in parsed.placeholders]
    uploads.check_columns(header, uploads.map_columns(header, names), names)
    settings = brief["settings"]
    model = registry.get_model(settings["model_id"])
    size = model.find_size(settings["size"])
    registry.validate(
        registry.default_settings(
            model.model_id,
            task=GenerationTask(settings["task"]),
            size=size,
            profile=QualityProfile(settings["profile"]),
        )
    )


def test_there_is_a_brief() -> None:
    assert BRIEFS
