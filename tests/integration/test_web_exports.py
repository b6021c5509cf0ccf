"""Exports over HTTP: chosen variants as an archive with manifests, and as a contact sheet."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from uuid import UUID

import pytest
from flask import Flask
from PIL import Image

from app.access import Role
from app.db import Database
from app.services import expanding
from app.services.export_archive import BLOCK_BYTES
from app.storage import Storage
from tests.factories import make_workspace
from tests.integration.gallery_tools import job_states, launch, render, video_of
from tests.web import Browser, make_member

pytestmark = pytest.mark.usefixtures("weights")

FORMULA = '=HYPERLINK("http://evil.example")'


@pytest.fixture
def batch_id(editor: Browser) -> UUID:
    return launch(editor, **{"values:geography": f"Paris\nTokyo\n{FORMULA}"})


@pytest.fixture
def variant_ids(database: Database, storage: Storage, tmp_path: Path, batch_id: UUID) -> list[UUID]:
    """Six variants, of which the last failed."""
    return render(database, storage, tmp_path, batch_id, is_good=lambda ordinal: ordinal < 5)


def archive_of(browser: Browser, path: str) -> zipfile.ZipFile:
    response = browser.get(path)
    assert response.status_code == 200, response.text
    assert response.mimetype == "application/zip"
    archive = zipfile.ZipFile(io.BytesIO(response.data))
    assert archive.testzip() is None
    return archive


def test_the_archive_holds_the_approved_files_and_tells_what_each_shows(
    editor: Browser, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    for variant_id, state in ((variant_ids[0], "approved"), (variant_ids[2], "approved")):
        editor.get(f"/variants/{variant_id}")
        editor.post(f"/variants/{variant_id}/review", {"state": state, "reason": "-lovely"})
    page = editor.get(f"/batches/{batch_id}/export").text
    assert "2 variants" in page
    assert "<li>Sneaker-cities_0001_224x128.mp4</li>" in page
    query = "show=approved&pattern={geography}_{size}_{number}"
    archive = archive_of(editor, f"/batches/{batch_id}/export.zip?{query}")
    names = ["Paris_224x128_0001.mp4", "HYPERLINK-http-evil.example_224x128_0003.mp4"]
    assert archive.namelist() == [*names, "manifest.csv", "manifest.json"]
    assert archive.read(names[0]) == video_of(0)
    assert archive.read(names[1]) == video_of(2)
    rows = list(csv.DictReader(io.StringIO(archive.read("manifest.csv").decode("utf-8-sig"))))
    assert [row["file"] for row in rows] == names
    # Nothing in the table is run by a spreadsheet.
    assert rows[1]["geography"] == f"'{FORMULA}"
    assert rows[0]["reason"] == "'-lovely"
    manifest = json.loads(archive.read("manifest.json"))
    assert manifest["campaign"] == "Sneaker cities"
    assert [item["values"]["geography"] for item in manifest["variants"]] == ["Paris", FORMULA]
    assert manifest["variants"][0]["review"] == "approved"


def test_the_archive_is_sent_in_blocks_while_it_is_read(
    editor: Browser, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    response = editor.client.get(f"/batches/{batch_id}/export.zip?show=all")
    blocks = list(response.iter_encoded())
    assert len(blocks) > 10
    assert max(map(len, blocks)) < BLOCK_BYTES + 10_000
    assert len(zipfile.ZipFile(io.BytesIO(b"".join(blocks))).namelist()) == 7


def test_ticked_variants_and_filters_narrow_the_export(
    editor: Browser, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    ticked = "&".join(f"variant={id_}" for id_ in (variant_ids[1], variant_ids[5]))
    page = editor.get(f"/batches/{batch_id}/export?{ticked}").text
    # The one that failed has nothing to take home.
    assert "1 ticked variant." in page
    assert len(archive_of(editor, f"/batches/{batch_id}/export.zip?{ticked}").namelist()) == 3
    tokyo = archive_of(editor, f"/batches/{batch_id}/export.zip?show=all&value:geography=Tokyo")
    assert len(tokyo.namelist()) == 4


def test_a_pattern_with_an_unknown_placeholder_is_refused(
    editor: Browser, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    page = editor.get(f"/batches/{batch_id}/export?pattern={{city}}")
    assert page.status_code == 400
    assert "There is no {city} to name files by" in page.text
    refused = editor.get(f"/batches/{batch_id}/export.zip?show=all&pattern={{city}}")
    assert refused.status_code == 400
    nothing = editor.get(f"/batches/{batch_id}/export.zip?show=rejected")
    assert nothing.status_code == 400


def test_a_file_that_is_gone_is_left_out_and_said_to_be(
    editor: Browser, storage: Storage, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    gone = next(key for key in storage.iter_keys("media/") if key.endswith(".mp4"))
    storage.delete(gone)
    archive = archive_of(editor, f"/batches/{batch_id}/export.zip?show=all")
    assert len(archive.namelist()) == 6
    lines = json.loads(archive.read("manifest.json"))["variants"]
    assert [line["file"] for line in lines].count("") == 1
    assert sum(line["is_missing"] for line in lines) == 1
    rows = list(csv.DictReader(io.StringIO(archive.read("manifest.csv").decode("utf-8-sig"))))
    for told in (lines, rows):
        reasons = {bool(line["file"]): line["missing_reason"] for line in told}
        assert reasons[True] == ""
        assert "no longer in the store" in reasons[False]


def test_what_the_store_lost_is_said_before_the_download_and_rendered_again(
    editor: Browser,
    database: Database,
    storage: Storage,
    tmp_path: Path,
    batch_id: UUID,
    variant_ids: list[UUID],
) -> None:
    asked = f"/batches/{batch_id}/missing-files"
    assert "no longer" not in editor.get(f"{asked}?show=succeeded").text
    assert "nothing to render again" in editor.post(f"{asked}/render", follow_redirects=True).text
    for gone in [key for key in storage.iter_keys("media/") if key.endswith(".mp4")][:2]:
        storage.delete(gone)
    assert "2 of 5 files are no longer in the store" in editor.get(f"{asked}?show=succeeded").text
    again = editor.post(f"{asked}/render")
    page = editor.get(again.location)
    assert "only what is gone or was never finished: 3 variants" in page.text
    assert "What is still there (3)" in page.text
    editor.post(f"{again.location}/launch")
    made = UUID(again.location.rpartition("/")[2])
    # The sixth had failed before, and is rendered too.
    with database.system_scope() as session:
        while expanding.expand_chunk(session, made):
            pass
    assert sorted(job_states(database, made)) == ["queued"] * 3 + ["succeeded"] * 3
    render(database, storage, tmp_path, made)
    assert "no longer" not in editor.get(f"/batches/{made}/missing-files?show=succeeded").text


def test_a_contact_sheet_shows_the_chosen_pictures(
    editor: Browser, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    response = editor.get(f"/batches/{batch_id}/contact-sheet.png?show=all")
    assert response.mimetype == "image/png"
    sheet = Image.open(io.BytesIO(response.data)).convert("RGB")
    # Five pictures in one row, each in its own colour.
    assert sheet.width > 5 * 224
    assert sheet.height < 300
    colours = {sheet.getpixel((16 + 240 * number + 100, 100)) for number in range(5)}
    assert len(colours) == 5
    assert editor.get(f"/batches/{batch_id}/contact-sheet.png?show=rejected").status_code == 400


def test_nobody_exports_what_belongs_to_others(
    app: Flask, database: Database, batch_id: UUID, variant_ids: list[UUID]
) -> None:
    with database.system_scope() as session:
        other = make_workspace(session)
    stranger = Browser(app)
    stranger.sign_in(make_member(database, other, Role.OWNER))
    assert stranger.get(f"/batches/{batch_id}/export.zip?show=all").status_code == 404
    assert Browser(app).get(f"/batches/{batch_id}/export.zip?show=all").status_code == 302
