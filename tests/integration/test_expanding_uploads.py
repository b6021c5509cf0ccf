"""A batch made from an upload reads the table once, however many chunks it is expanded in."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO
from uuid import UUID

import pytest
from sqlalchemy import select, update

from app.access import Actor
from app.db import Database
from app.models import Batch, BatchState, Campaign, ExpansionMode, Upload, Variant
from app.services import batches, expanding, uploads
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from app.storage import LocalStorage, Storage
from tests.factories import SETTINGS

pytestmark = pytest.mark.usefixtures("weights")

ROWS = 12
BACKDROPS = ("a beach", "a meadow", "a roof")
# Line feeds within cells and letters of several bytes: neither lines nor characters count bytes.
PLACES = [f"Zürich\nNo. {number}" if number % 3 else f"東京 {number}" for number in range(ROWS)]

Launch = Callable[..., UUID]


@pytest.fixture
def upload(database: Database, actor: Actor, campaign: Campaign, storage: Storage) -> Upload:
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(("row_id", "geography", "backdrop", "audience"))
    table.writerows((f"r{n}", place, "a beach", "kids") for n, place in enumerate(PLACES))
    with database.workspace_scope(actor) as session:
        return uploads.create_upload(
            session,
            actor,
            storage,
            campaign_id=campaign.id,
            filename="places.csv",
            stream=io.BytesIO(text.getvalue().encode()),
        )


@pytest.fixture
def launch(database: Database, actor: Actor, campaign: Campaign, upload: Upload) -> Launch:
    def launch(*parameters: SpecParameter, **changes: Any) -> UUID:
        columns = [
            SpecParameter(name=name, kind=name, column=name)  # type: ignore[arg-type]
            for name in ("geography", "audience")
        ]
        values: dict[str, Any] = {
            "parameters": (*columns, *parameters),
            "mode": ExpansionMode.ZIP,
            "settings": SpecSettings(**SETTINGS),
            "seed": 11,
            "row_id_column": "row_id",
            "row_count": ROWS,
        }
        spec = BatchSpec(**values | changes)
        with database.workspace_scope(actor) as session:
            batch = batches.create_batch(
                session, actor, campaign_id=campaign.id, spec=spec, upload_id=upload.id
            )
            batches.launch_batch(session, actor, batch.id)
        return batch.id

    return launch


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the rows in the order in which they are read."""
    seen: list[str] = []
    read = uploads.read_rows

    def read_rows(*args: Any, **options: Any) -> Iterator[Any]:
        for row in read(*args, **options):
            seen.append(row.cells["row_id"])
            yield row

    monkeypatch.setattr(uploads, "read_rows", read_rows)
    return seen


def from_column() -> SpecParameter:
    return SpecParameter(name="backdrop", kind="backdrop", column="backdrop")  # type: ignore[arg-type]


def typed() -> SpecParameter:
    return SpecParameter(name="backdrop", kind="backdrop", values=BACKDROPS)  # type: ignore[arg-type]


def expand(database: Database, batch_id: UUID, *, chunk_size: int) -> None:
    while True:
        with database.system_scope() as session:
            if not expanding.expand_chunk(session, batch_id, chunk_size=chunk_size):
                break
    with database.system_scope() as session:
        assert session.get_one(Batch, batch_id).state is BatchState.RUNNING


def made(database: Database, batch_id: UUID) -> list[tuple[str | None, str, str]]:
    with database.system_scope() as session:
        rows = session.execute(
            select(Variant.row_id, Variant.values)
            .where(Variant.batch_id == batch_id)
            .order_by(Variant.ordinal)
        )
        return [(row[0], row[1]["geography"], row[1]["backdrop"]) for row in rows]


def test_every_row_is_read_once(database: Database, launch: Launch, rows_read: list[str]) -> None:
    batch_id = launch(from_column())
    rows_read.clear()
    expand(database, batch_id, chunk_size=5)
    assert rows_read == [f"r{number}" for number in range(ROWS)]
    expected = [(f"r{n}", place, "a beach") for n, place in enumerate(PLACES)]
    assert made(database, batch_id) == expected


def test_a_chunk_that_ends_within_the_values_of_a_row_goes_on_with_that_row(
    database: Database, launch: Launch, rows_read: list[str]
) -> None:
    batch_id = launch(typed(), mode=ExpansionMode.CARTESIAN)
    rows_read.clear()
    expand(database, batch_id, chunk_size=7)
    assert len(rows_read) <= ROWS + 5, "one row more for each chunk that began within one"
    assert made(database, batch_id) == [
        (f"r{n}", place, backdrop) for n, place in enumerate(PLACES) for backdrop in BACKDROPS
    ]


def test_every_take_reads_the_table_again_from_its_start(
    database: Database, launch: Launch, rows_read: list[str]
) -> None:
    batch_id = launch(from_column(), takes=2)
    rows_read.clear()
    expand(database, batch_id, chunk_size=5)
    assert rows_read == [f"r{number}" for number in range(ROWS)] * 2
    expected = [(f"r{n}", place, "a beach") for n, place in enumerate(PLACES)]
    assert made(database, batch_id) == expected * 2


def test_an_expansion_that_was_begun_before_places_were_kept_skips_what_it_has(
    database: Database, launch: Launch
) -> None:
    batch_id = launch(from_column())
    with database.system_scope() as session:
        expanding.expand_chunk(session, batch_id, chunk_size=5)
        session.execute(update(Batch).values(expansion_offset=0))
    expand(database, batch_id, chunk_size=5)
    assert [row_id for row_id, *_ in made(database, batch_id)] == [f"r{n}" for n in range(ROWS)]


def test_a_part_of_the_combinations_reads_its_own_rows_in_every_take(
    database: Database, launch: Launch
) -> None:
    whole = [(f"r{n}", place, backdrop) for n, place in enumerate(PLACES) for backdrop in BACKDROPS]
    part = {"mode": ExpansionMode.CARTESIAN, "first_combination": 7, "combination_limit": 10}
    batch_id = launch(typed(), takes=2, **part)
    expand(database, batch_id, chunk_size=4)
    assert made(database, batch_id) == whole[7:17] * 2

    last = launch(typed(), **{**part, "first_combination": len(whole) - 3})
    expand(database, last, chunk_size=2)
    assert made(database, last) == whole[-3:]


def test_a_sample_has_its_rows_wherever_they_stand(database: Database, launch: Launch) -> None:
    batch_id = launch(typed(), mode=ExpansionMode.SAMPLED, sample_size=20, sample_seed=3)
    expand(database, batch_id, chunk_size=6)
    found = made(database, batch_id)
    assert len(set(found)) == 20
    assert all(PLACES[int(row_id[1:])] == place for row_id, place, _ in found if row_id)


def test_the_bytes_before_the_cursor_are_not_fetched(
    database: Database, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = launch(from_column())
    offsets: list[int] = []
    open_file = LocalStorage.open

    def spy(self: LocalStorage, key: str, *, offset: int = 0) -> BinaryIO:
        offsets.append(offset)
        return open_file(self, key, offset=offset)

    monkeypatch.setattr(LocalStorage, "open", spy)
    expand(database, batch_id, chunk_size=5)
    assert offsets == sorted(set(offsets))
    assert len(offsets) == 3
