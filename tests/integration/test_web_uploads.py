"""Uploads over HTTP: questions, downloads, samples, remembered columns and newer versions."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from openpyxl import load_workbook
from sqlalchemy import func, select

from app.access import Role
from app.config import Config
from app.db import Database
from app.models import Batch, Campaign, Upload, Workspace
from app.paths import ROOT
from tests.factories import make_campaign
from tests.web import Browser, make_app, make_member

FILES = ROOT / "tests" / "data" / "csv"
TABLE = b"row_id,ort,geo,audience,notes\n1, beach ,Oslo,kids,=1+1\n2,hill,Rome,adults,x\n"


@pytest.fixture
def campaign(database: Database, workspace: Workspace) -> Campaign:
    with database.system_scope() as session:
        values: dict[str, list[str]] = {"backdrop": [], "geography": [], "audience": []}
        return make_campaign(session, workspace_id=workspace.id, values=values)


@pytest.fixture
def editor(config: Config, database: Database, workspace: Workspace, weights: Any) -> Browser:
    browser = Browser(make_app(config))
    browser.sign_in(make_member(database, workspace, Role.EDITOR))
    return browser


def upload(editor: Browser, campaign: Campaign, content: bytes, **headers: str) -> Any:
    editor.get(f"/campaigns/{campaign.id}/upload")
    return editor.post(
        f"/campaigns/{campaign.id}/upload",
        {"file": (io.BytesIO(content), "cities.csv")},
        content_type="multipart/form-data",
        headers=headers,
    )


def test_a_script_is_told_line_by_line_how_far_the_check_is_and_where_to_go(
    editor: Browser, campaign: Campaign
) -> None:
    rows = b"".join(b"%d,beach,Oslo %d,kids,x\n" % (n, n) for n in range(3, 5_003))
    response = upload(editor, campaign, TABLE + rows, Accept="application/x-ndjson")
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert lines[:-1] == [{"rows": 2000, "expected": 5003}, {"rows": 4000, "expected": 5003}]
    assert editor.get(lines[-1]["url"]).status_code == 200


def test_a_script_is_told_every_fault_and_nothing_is_kept(
    editor: Browser, campaign: Campaign, database: Database
) -> None:
    response = upload(editor, campaign, TABLE + b"3,x\n4,y\n", Accept="application/x-ndjson")
    (line,) = [json.loads(line) for line in response.text.splitlines()]
    assert line["title"] == "This file cannot be used yet. Nothing was saved."
    assert [text[:17] for text in line["errors"][:2]] == ["Row 3 (line 4): t", "Row 4 (line 5): t"]
    with database.system_scope() as session:
        assert session.scalar(select(func.count()).select_from(Upload)) == 0


def test_no_work_starts_before_a_required_question_is_answered(
    editor: Browser, campaign: Campaign, database: Database
) -> None:
    page = upload(editor, campaign, (FILES / "headerless.csv").read_bytes()).location
    assert "What is the first line of this file?" in editor.get(page).text
    columns = {"column:backdrop": "beach", "column:geography": "Paris"}
    response = editor.post(page, {**columns, "column:audience": "young runners"})
    assert response.status_code == 400
    with database.system_scope() as session:
        assert session.scalar(select(func.count()).select_from(Batch)) == 0
    editor.get(page)
    assert editor.post(f"{page}/answers", {"answer:header": "data"}).location == page
    shown = editor.get(page).text
    assert "Which column fills which placeholder?" in shown
    assert "column 1" in shown


def test_an_answer_that_was_not_offered_is_refused(editor: Browser, campaign: Campaign) -> None:
    page = upload(editor, campaign, (FILES / "headerless.csv").read_bytes()).location
    editor.get(page)
    response = editor.post(f"{page}/answers", {"answer:header": "maybe"})
    assert response.status_code == 400
    assert "one of the answers that are offered" in response.text


def test_the_original_the_mended_table_and_the_repairs_can_be_taken_home(
    editor: Browser, campaign: Campaign
) -> None:
    page = upload(editor, campaign, TABLE).location
    original = editor.get(f"{page}/original")
    assert original.data == TABLE
    assert "cities.csv" in original.headers["Content-Disposition"]
    mended = list(csv.reader(io.StringIO(editor.get(f"{page}/mended.csv").text.lstrip("\ufeff"))))
    assert mended[1] == ["1", "beach", "Oslo", "kids", "'=1+1"]
    repairs = list(csv.reader(io.StringIO(editor.get(f"{page}/repairs.csv").text.lstrip("\ufeff"))))
    assert repairs[0] == ["row", "line", "column", "before", "after", "why"]
    assert repairs[1][:5] == ["1", "2", "ort", " beach ", "beach"]


def test_the_columns_chosen_once_are_remembered_and_a_newer_version_shows_what_changes(
    editor: Browser, campaign: Campaign
) -> None:
    page = upload(editor, campaign, TABLE).location
    editor.get(page)
    chosen = {"column:backdrop": "ort", "column:geography": "geo", "column:audience": "audience"}
    assert editor.post(page, chosen).status_code == 302
    newer = TABLE.replace(b"2,hill,Rome", b"3,snow,Bern").replace(b"Oslo", b"Bergen")
    shown = editor.get(upload(editor, campaign, newer).location).text
    assert "<option selected>ort</option>" in shown
    assert "as last time" in shown
    words = " ".join(shown.split())
    for name, number in [("Added", 1), ("Changed", 1), ("Removed", 1), ("Unchanged", 0)]:
        assert f"<dt>{name}</dt><dd>{number}</dd>" in words
    assert "<del>Oslo</del>" in shown
    assert "<ins>Bergen</ins>" in shown


def test_the_sample_workbook_can_be_uploaded_as_it_is(editor: Browser, campaign: Campaign) -> None:
    sample = editor.get(f"/campaigns/{campaign.id}/sample.xlsx").data
    sheet = load_workbook(io.BytesIO(sample)).active
    assert [cell.value for cell in sheet[1]] == ["row_id", "backdrop", "geography", "audience"]
    page = upload(editor, campaign, sample).location
    assert "the sheet “Variants”" in editor.get(page).text


def test_a_placeholder_without_a_column_keeps_the_way_on_shut_and_says_why(
    editor: Browser, campaign: Campaign, database: Database
) -> None:
    page = upload(editor, campaign, TABLE.replace(b"audience", b"notiz")).location
    shown = " ".join(editor.get(page).text.split())
    assert "data-needs-columns disabled" in shown
    assert "Choose a column for backdrop, audience first." in shown
    # Whoever sends it all the same is told so on the page itself, which can be opened again.
    refused = editor.post(page, {"column:backdrop": "ort", "column:geography": "geo"})
    assert refused.status_code == 400
    assert "{{ audience }}" in refused.text
    assert "Choose a column for audience first." in refused.text
    assert editor.get(page).status_code == 200
    with database.system_scope() as session:
        assert session.scalar(select(func.count()).select_from(Batch)) == 0


def test_an_upload_says_what_each_quality_costs_before_there_is_a_batch(
    editor: Browser, campaign: Campaign, database: Database
) -> None:
    page = upload(editor, campaign, TABLE).location
    chosen = "column:backdrop=ort&column:geography=geo&column:audience=audience"
    shown = editor.get(f"{page}/prices?{chosen}").text
    assert "The quality of this campaign is <strong>Exact</strong>" in shown
    assert "Faithful<p" in shown
    assert shown.count("$") == 5, "one price for each quality"
    assert "as soon as every placeholder has a column" in editor.get(f"{page}/prices").text
    with database.system_scope() as session:
        assert session.scalar(select(func.count()).select_from(Batch)) == 0


def test_the_price_of_many_rows_is_told_as_its_limit(editor: Browser, campaign: Campaign) -> None:
    rows = b"".join(b"%d,beach,Oslo %d,kids,x\n" % (n, n) for n in range(3, 1_003))
    page = upload(editor, campaign, TABLE + rows).location
    chosen = "column:backdrop=ort&column:geography=geo&column:audience=audience"
    shown = editor.get(f"{page}/prices?{chosen}").text
    assert "1,002 variants cost" in shown
    assert "at most: that is Exact" in shown


def test_an_address_that_only_forms_are_sent_to_leads_to_its_page(
    editor: Browser, campaign: Campaign
) -> None:
    page = upload(editor, campaign, TABLE).location
    assert editor.get(f"{page}/answers").location == page
    assert editor.get(f"/campaigns/{campaign.id}/batches").location == f"/campaigns/{campaign.id}"


def test_what_a_form_is_refused_for_is_told_on_the_page_that_it_stood_on(
    editor: Browser, campaign: Campaign
) -> None:
    page = upload(editor, campaign, TABLE).location
    editor.get(page)
    chosen = {"column:backdrop": "ort", "column:geography": "geo", "column:audience": "audience"}
    batch = editor.post(page, chosen).location
    editor.get(batch)
    here = f"http://localhost{batch}?show=all"
    answer = editor.post(f"{batch}/reviews", headers={"Referer": here})
    assert (answer.status_code, answer.location) == (303, f"{batch}?show=all")
    assert "Tick some variants first." in editor.get(answer.location).text
    # From elsewhere, or from a page that is none, an error page of its own.
    for referer in ("http://elsewhere.example/", f"http://localhost{batch}/reviews"):
        editor.get(batch)
        refused = editor.post(f"{batch}/reviews", headers={"Referer": referer})
        assert refused.status_code == 400
