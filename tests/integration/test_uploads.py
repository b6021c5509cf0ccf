"""Uploads: tables checked against a campaign's prompt and kept as they were received."""

from __future__ import annotations

import io
import resource
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import select, update

from app.access import Actor, Role
from app.db import Database
from app.errors import Forbidden, InvalidInput, LimitExceeded, NotFound, StorageFull
from app.models import Upload, Workspace
from app.paths import ROOT
from app.services import campaigns, table_samples, upload_receiving, uploads
from app.services.table_findings import TableError
from app.services.tables import open_table
from app.storage import LocalStorage, Storage
from tests.factories import SETTINGS, make_workspace

FILES = ROOT / "tests" / "data" / "csv"
PROMPT = "{{ geography }}, {{ audience }}, {{ backdrop }}"
HEADER = b"row_id,geography,audience,backdrop\n"
NAMES = ["geography", "audience", "backdrop"]


@pytest.fixture
def campaign_id(database: Database, actor: Actor) -> UUID:
    return make(database, actor, PROMPT)


def make(database: Database, actor: Actor, prompt: str) -> UUID:
    with database.workspace_scope(actor) as session:
        campaign = campaigns.create_campaign(
            session, actor, name="Sneakers", settings=SETTINGS, prompt=prompt
        )
        return campaign.id


class Uploading:
    """Uploads files to one campaign, each in a transaction of its own."""

    def __init__(self, database: Database, actor: Actor, storage: Storage, campaign: UUID) -> None:
        self.database, self.actor, self.storage, self.campaign = database, actor, storage, campaign

    def file(self, name: str) -> Upload:
        return self.bytes((FILES / name).read_bytes(), filename=name)

    def bytes(self, content: bytes, *, filename: str = "table.csv") -> Upload:
        with self.database.workspace_scope(self.actor) as session:
            return uploads.create_upload(
                session,
                self.actor,
                self.storage,
                campaign_id=self.campaign,
                filename=filename,
                stream=io.BytesIO(content),
            )

    def answer(self, upload: Upload, answers: dict[str, str]) -> Upload:
        with self.database.workspace_scope(self.actor) as session:
            return uploads.answer_questions(
                session, self.actor, self.storage, upload.id, answers=answers
            )

    def allow(self, max_variants: int) -> None:
        with self.database.system_scope() as session:
            session.execute(update(Workspace).values(max_variants_per_batch=max_variants))

    def list(self) -> list[Upload]:
        with self.database.system_scope() as session:
            return [*session.scalars(select(Upload).order_by(Upload.created_at))]

    def refused(self, content: bytes) -> TableError:
        with pytest.raises(TableError) as caught:
            self.bytes(content)
        assert list(self.storage.iter_keys()) == []
        with self.database.system_scope() as session:
            assert session.scalars(select(Upload)).all() == []
        return caught.value


@pytest.fixture
def uploading(database: Database, actor: Actor, storage: Storage, campaign_id: UUID) -> Uploading:
    return Uploading(database, actor, storage, campaign_id)


def test_a_table_is_kept_byte_for_byte_with_how_to_read_it(uploading: Uploading) -> None:
    upload = uploading.file("windows_1252.csv")
    assert (upload.row_count, upload.header) == (2, ["row_id", *NAMES])
    assert (upload.dialect["encoding"], upload.dialect["delimiter"]) == ("cp1252", ";")
    assert [item["code"] for item in upload.findings] == ["guessed_encoding", "encoding"]
    content = (FILES / "windows_1252.csv").read_bytes()
    assert upload.size_bytes == len(content)
    with uploading.storage.open(upload.storage_key) as stored:
        assert stored.read() == content
    rows = list(uploads.read_rows(uploading.storage, upload))
    assert [(row.number, row.line, row.cells["geography"]) for row in rows] == [
        (1, 2, "Zürich"),
        (2, 3, "Málaga"),
    ]


def test_the_same_file_twice_is_stored_once(uploading: Uploading) -> None:
    first, second = uploading.file("bom.csv"), uploading.file("bom.csv")
    assert first.id != second.id
    assert set(uploading.storage.iter_keys()) == {
        first.storage_key,
        first.table_key,
        first.repairs_key,
    }


def test_a_file_without_a_header_never_starts_work(uploading: Uploading) -> None:
    upload = uploading.file("headerless.csv")
    assert upload.is_open
    (question,) = uploads.list_questions(upload)
    assert (question.question_id, question.preset) == ("header", "data")
    with pytest.raises(InvalidInput, match="question to be answered"):
        list(uploads.read_rows(uploading.storage, upload))
    answered = uploading.answer(upload, {"header": "data"})
    assert not answered.is_open
    assert answered.header == ["column 1", "column 2", "column 3"]
    rows = list(uploads.read_rows(uploading.storage, answered))
    assert [(row.number, row.line, row.cells["column 1"]) for row in rows] == [
        (1, 1, "Paris"),
        (2, 2, "Rome"),
        (3, 3, "Paris"),
    ]


def test_the_command_line_refuses_a_file_without_a_header() -> None:
    with (FILES / "headerless.csv").open("rb") as file, pytest.raises(TableError) as caught:
        uploads.check_table(file, names=NAMES)
    assert "looks like data, not like a header" in caught.value.message
    assert "row_id,geography,audience,backdrop" in caught.value.message


def test_unknown_names_are_a_warning_because_a_person_can_match_them(
    uploading: Uploading,
) -> None:
    upload = uploading.bytes(b"stadt,gruppe,ort\nParis,runners,beach\n")
    assert upload.is_open
    upload = uploading.answer(upload, {"header": "names"})
    (finding,) = upload.findings
    assert (finding["severity"], finding["code"]) == ("warning", "no_known_column")
    assert not upload.is_open


def test_a_missing_column_is_named_with_the_nearest(uploading: Uploading) -> None:
    upload = uploading.bytes(b"row_id,geografy,audience,backdrop\n1,Paris,runners,beach\n")
    (finding,) = upload.findings
    assert "{{ geography }}; did you mean “geografy”?" in finding["message"]
    columns = uploads.map_columns(upload.header, NAMES)
    assert columns == {"audience": "audience", "backdrop": "backdrop"}
    with pytest.raises(InvalidInput, match="did you mean “geografy”") as caught:
        uploads.check_columns(upload.header, columns, NAMES)
    assert caught.value.field == "geography"


def test_columns_agree_whatever_case_blanks_and_hyphens() -> None:
    header = ["Row-ID", "Target Audience", "BACKDROP"]
    assert uploads.map_columns(header, ["target_audience", "backdrop", "x"]) == {
        "target_audience": "Target Audience",
        "backdrop": "BACKDROP",
    }
    assert uploads.find_row_id_column(header) == "Row-ID"
    assert uploads.suggest_column("audience", header) == "Target Audience"
    assert uploads.suggest_column("colour", header) is None
    uploads.check_columns(header, {"backdrop": "BACKDROP"}, ["backdrop"])


def test_every_missing_or_long_value_is_named_at_once_and_nothing_is_stored(
    uploading: Uploading,
) -> None:
    rows = b"1,Paris,,beach\n2,Oslo,runners," + b"x" * 2_001 + b"\n3,,\xc2\xa0,beach\n"
    error = uploading.refused(HEADER + rows)
    places = {(item.code, item.row, item.line, item.column) for item in error.findings}
    assert places >= {
        ("missing_value", 1, 2, "audience"),
        ("long_value", 2, 3, "backdrop"),
        ("missing_value", 3, 4, "geography"),
        ("missing_value", 3, 4, "audience"),
    }
    assert "Row 2 (line 3), column “backdrop”: this value has 2,001 characters; 2,000 are" in (
        error.message
    )
    assert "Row 1 (line 2), column “audience”: there is no value for {{ audience }}" in (
        error.message
    )
    assert error.field == "file"


def test_a_quoted_empty_value_of_a_single_column_is_named_with_its_place(
    database: Database, actor: Actor, storage: Storage
) -> None:
    campaign_id = make(database, actor, "a sneaker in {{ geography }}")
    uploading = Uploading(database, actor, storage, campaign_id)
    error = uploading.refused(b'geography\nParis\n\n""\n')
    (finding,) = [item for item in error.findings if item.code == "missing_value"]
    assert (finding.row, finding.line, finding.column) == (2, 4, "geography")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("empty.csv", "file is empty"),
        ("blank.csv", "file is empty"),
        ("header_only.csv", "no row below it"),
        ("long_value.csv", "Row 2 (line 3), column “backdrop”: this value has 10,000 characters"),
        ("nul_bytes.csv", "Row 1 (line 2), column “audience”: this value holds a NUL byte"),
        ("ragged.csv", "Row 3 (line 5): this row has 3 cells, the header has 4"),
        ("duplicate_row_id.csv", "Row 3 (line 4), column “row_id”"),
        ("unclosed_quote.csv", "Line 3: a double quote is opened here"),
        ("workbook.csv", "workbook is damaged or was cut short"),
    ],
)
def test_a_table_with_errors_is_refused_whole(
    uploading: Uploading, name: str, message: str
) -> None:
    assert message in uploading.refused((FILES / name).read_bytes()).message


def test_a_placeholder_with_a_default_or_a_condition_may_stay_empty(
    database: Database, actor: Actor, storage: Storage
) -> None:
    prompt = "{{ geography|default('anywhere') }}{% if audience %} for {{ audience }}{% endif %}"
    uploading = Uploading(database, actor, storage, make(database, actor, prompt))
    assert uploading.bytes(b"geography,audience\n,\nParis,\n,runners\n").row_count == 2


def test_other_columns_are_kept_and_never_an_error(uploading: Uploading) -> None:
    upload = uploading.bytes(
        b"row_id,geography,audience,backdrop,notes\n1,Paris,runners,beach,=1+1\n"
    )
    assert upload.findings == []
    (row,) = uploads.read_rows(uploading.storage, upload)
    assert row.cells["notes"] == "=1+1"


def test_a_file_over_the_limit_is_refused(
    uploading: Uploading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_receiving, "MAX_BYTES", 100)
    with pytest.raises(LimitExceeded, match="split it"):
        uploading.bytes(HEADER + b"1,Paris,runners,beach\n" * 10)
    assert list(uploading.storage.iter_keys()) == []


def test_a_full_disk_leaves_no_upload(
    database: Database, actor: Actor, campaign_id: UUID, tmp_path: Path
) -> None:
    full = LocalStorage(tmp_path / "full", reserve_bytes=2**62)
    with pytest.raises(StorageFull):
        Uploading(database, actor, full, campaign_id).file("bom.csv")
    with database.system_scope() as session:
        assert session.scalars(select(Upload)).all() == []


def test_the_file_name_is_for_the_screen_alone(uploading: Uploading) -> None:
    content = HEADER + b"1,Paris,runners,beach\n"
    upload = uploading.bytes(content, filename="..\\..\\etc/pass\x00wd\u202e.csv")
    assert upload.filename == "passwd.csv"
    assert upload.storage_key == f"uploads/{upload.workspace_id}/{upload.sha256}.csv"
    assert uploading.bytes(content, filename="/").filename == "table.csv"
    assert len(uploading.bytes(content, filename="x" * 400 + ".csv").filename) == 255


def test_a_viewer_cannot_upload_and_strangers_see_nothing(
    database: Database, uploading: Uploading, actor: Actor
) -> None:
    upload = uploading.file("bom.csv")
    viewer = Actor(workspace_id=actor.workspace_id, role=Role.VIEWER)
    with database.workspace_scope(viewer) as session:
        assert uploads.get_upload(session, viewer, upload.id).id == upload.id
    with pytest.raises(Forbidden):
        Uploading(database, viewer, uploading.storage, uploading.campaign).file("bom.csv")
    with database.system_scope() as session:
        other = Actor(workspace_id=make_workspace(session).id, role=Role.OWNER)
    with database.workspace_scope(other) as session, pytest.raises(NotFound):
        uploads.get_upload(session, other, upload.id)
    with pytest.raises(NotFound):
        Uploading(database, other, uploading.storage, uploading.campaign).file("bom.csv")


def test_the_sample_can_be_uploaded_as_it_is(
    database: Database, actor: Actor, uploading: Uploading
) -> None:
    with database.workspace_scope(actor) as session:
        details = campaigns.get_campaign(session, actor, uploading.campaign)
        details.parameters[0].values = ["Paris, France", "Rome"]
        sample = table_samples.sample_csv(details)
    table = open_table(io.BytesIO(sample))
    rows = [row.cells for row in table.rows()]
    assert table.header == ("row_id", *NAMES)
    assert [cells[1] for cells in rows] == ["Paris, France", "Rome", "Paris, France"]
    (finding,) = uploading.bytes(sample).findings
    assert finding["code"] == "byte_order_mark"


class _Unseekable(io.RawIOBase):
    """What an object from a bucket looks like: readable once, forwards."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        chunk = self._content.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def test_rows_are_read_from_a_store_that_cannot_wind_back(
    uploading: Uploading, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = uploading.file("semicolon.csv")
    assert upload.table_key is not None
    with uploading.storage.open(upload.table_key) as stored:
        content = stored.read()
    monkeypatch.setattr(
        uploading.storage, "open", lambda key, *, offset=0: _Unseekable(content[offset:])
    )
    rows = list(uploads.read_rows(uploading.storage, upload))
    assert [row.cells["geography"] for row in rows] == ["Paris", "Rome"]


def test_a_table_with_more_rows_than_a_batch_may_have_is_refused_at_once(
    uploading: Uploading,
) -> None:
    uploading.allow(2)
    rows = b"".join(b"%d,city %d,group,place\n" % (n, n) for n in range(3))
    (finding,) = uploading.refused(HEADER + rows).findings
    assert (finding.code, finding.row) == ("too_many_rows", 3)
    assert "more than 2 rows" in finding.message
    uploading.allow(3)
    assert uploading.bytes(HEADER + rows).row_count == 3


def test_a_hundred_thousand_rows_are_checked_in_flat_memory(uploading: Uploading) -> None:
    uploading.allow(100_000)
    lines = [b"%d,city %d,group %d,place %d\n" % (n, n, n % 7, n % 9) for n in range(100_000)]
    content = HEADER + b"".join(lines)
    del lines
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert uploading.bytes(content).row_count == 100_000
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # The ids, which must differ, are what grows with the rows.
    assert grown_kib < 48 * 1024
    (upload,) = uploading.list()
    with uploading.storage.open(upload.storage_key) as stored:
        assert stored.seek(0, io.SEEK_END) == len(content)
