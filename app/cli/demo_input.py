"""What the demo renders: a brief and a table, read and checked before anything is started."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from app.errors import InvalidInput
from app.paths import EXAMPLES
from app.services import uploads
from app.services.prompts import optional_names, parse_prompt
from app.services.table_findings import TableError
from app.services.tables import Table, open_table
from engine import registry
from engine.types import GenerationTask, QualityProfile, RenderSettings

BRIEF = EXAMPLES / "briefs" / "sneaker_cities.toml"
# The brief's table continued, for `--rows` beyond it.
LONG_CSV = EXAMPLES / "sneaker_world.csv"


@dataclass(frozen=True, kw_only=True)
class DemoInput:
    """What is to be rendered: a campaign and the rows that fill its prompt."""

    campaign: str
    brief: str
    prompt: str
    negative_prompt: str
    settings: RenderSettings
    seed: int
    table: DemoTable
    force: bool

    @classmethod
    def read(
        cls, *, csv_path: Path | None, rows: int | None, prompt: str | None, force: bool
    ) -> DemoInput:
        """The example brief, with another table, its first `rows`, or another prompt.

        InvalidInput when the prompt or the table cannot be used, or has fewer rows.
        """
        brief = tomllib.loads(BRIEF.read_text())
        text, negative_text = prompt or brief["prompt"], brief["negative_prompt"]
        is_example = csv_path is None
        path = csv_path or BRIEF.parent / brief["table"]
        table = DemoTable.read(path, text, negative_text)
        if is_example and rows is not None and rows > table.row_count:
            table = DemoTable.read(LONG_CSV, text, negative_text)
        return cls(
            campaign=brief["name"] if is_example else path.stem.replace("_", " "),
            brief=brief["brief"].strip() if is_example else "",
            prompt=text,
            negative_prompt=negative_text,
            settings=_render_settings(brief["settings"]),
            seed=brief["settings"]["seed"],
            table=table if rows is None else table.first(rows, is_example=is_example),
            force=force,
        )


@dataclass(frozen=True, kw_only=True)
class DemoTable:
    """A table that fits the prompt; `columns` fill it, `kept` go along with each video."""

    filename: str
    content: bytes
    row_count: int
    columns: tuple[str, ...]
    kept: tuple[str, ...]

    @classmethod
    def read(cls, path: Path, text: str, negative_text: str) -> DemoTable:
        """Check it whole, as an upload is; InvalidInput names all that is wrong."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror}.", field="csv") from None
        names = _placeholders(text, negative_text)
        try:
            table, row_count, _ = uploads.check_table(
                io.BytesIO(content), names=names, optional=optional_names(text, negative_text)
            )
        except TableError as error:
            message = f"{path} cannot be used as it is.\n{error.message}"
            raise InvalidInput(message, field="csv") from None
        columns = uploads.map_columns(table.header, names)
        uploads.check_columns(table.header, columns, names)
        taken = {*columns.values(), uploads.find_row_id_column(table.header)}
        return cls(
            filename=path.name,
            content=content,
            row_count=row_count,
            columns=tuple(columns.values()),
            kept=tuple(name for name in table.header if name not in taken),
        )

    def first(self, count: int, *, is_example: bool) -> DemoTable:
        """The table with its first `count` rows, as UTF-8 with commas."""
        if count > self.row_count:
            longer = "; a larger table of your own goes in with --csv" if is_example else ""
            raise InvalidInput(
                f"{self.filename} has {self.row_count:,} rows, fewer than --rows {count}. Say "
                f"--rows {self.row_count} to render them all{longer}.",
                field="rows",
            )
        table = open_table(io.BytesIO(self.content))
        return DemoTable(
            filename=self.filename,
            content=_write(table, count),
            row_count=count,
            columns=self.columns,
            kept=self.kept,
        )


def _placeholders(*texts: str) -> list[str]:
    found = [
        item.name for text in texts if text.strip() for item in parse_prompt(text).placeholders
    ]
    return list(dict.fromkeys(found))


def _write(table: Table, count: int) -> bytes:
    text = io.StringIO()
    rows = (row.cells for row in islice(table.rows(), count))
    csv.writer(text).writerows([table.header, *rows])
    return text.getvalue().encode()


def _render_settings(wanted: Mapping[str, str]) -> RenderSettings:
    """The model's recommended settings in the size and quality that the brief asks for."""
    return registry.default_settings(
        wanted["model_id"],
        task=GenerationTask(wanted["task"]),
        size=registry.get_model(wanted["model_id"]).find_size(wanted["size"]),
        profile=QualityProfile(wanted["profile"]),
    )
