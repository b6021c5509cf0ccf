"""What a quote says of its table: rows rendered before, repeated or left out, unknown words."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from uuid import UUID

import pytest

from app.db import Database
from app.models import Campaign, Workspace
from app.storage import Storage
from tests.factories import SETTINGS, make_campaign
from tests.integration.gallery_tools import render
from tests.web import Browser

pytestmark = pytest.mark.usefixtures("weights")

# As the form keeps it: with another seed, nothing would come out as it did before.
SEEDED = {**SETTINGS, "seed": 7}
HEADER = "backdrop,geography,audience\n"
CHOICES = {f"column:{name}": name for name in ("backdrop", "geography", "audience")}


@pytest.fixture
def campaign(database: Database, workspace: Workspace) -> Campaign:
    with database.system_scope() as session:
        return make_campaign(session, workspace_id=workspace.id, settings=SEEDED)


def quote(editor: Browser, campaign: Campaign, *rows: str) -> UUID:
    """A batch of these rows, priced and not launched."""
    content = (HEADER + "\n".join(rows)).encode()
    editor.get(f"/campaigns/{campaign.id}/upload")
    sent = editor.post(
        f"/campaigns/{campaign.id}/upload",
        {"file": (io.BytesIO(content), "rows.csv")},
        content_type="multipart/form-data",
    )
    editor.get(sent.location)
    made = editor.post(sent.location, CHOICES)
    assert made.status_code == 302, made.text
    return UUID(made.location.rpartition("/")[2])


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_the_quote_of_a_table_names_rows_rendered_before_repeated_and_left_out(
    editor: Browser,
    campaign: Campaign,
    database: Database,
    storage: Storage,
    tmp_path: Path,
) -> None:
    first = quote(editor, campaign, "beach,Paris,gamers", "forest,Tokyo,gamers")
    assert "Every row asks for something new" in editor.get(f"/batches/{first}/rows").text
    editor.post(f"/batches/{first}/launch")
    render(database, storage, tmp_path, first)
    second = quote(
        editor,
        campaign,
        "snow,Cairo,gamers",
        HEADER.strip(),
        "forest,Tokyo,gamers",
        "snow,Cairo,gamers",
        "desert,Cairo,gamers",
        *["desert,Cairo,gamers"] * 7,
    )
    page = editor.get(f"/batches/{second}").text
    assert f'hx-get="/batches/{second}/rows"' in page
    shown = text_of(editor.get(f"/batches/{second}/rows").text)
    # Numbers are those of the table as it was uploaded: the second row is its header again.
    assert "Rendered before 1 row: 3 Taken from there" in shown
    assert (
        "Same as an earlier row 8 rows: 4 (as 1), 6 (as 5), 7 (as 5), 8 (as 5), 9 (as 5)"
        " and 3 more" in shown
    )
    assert "Left out Line 3: the header stands here again and was skipped" in shown
    assert "All 9 rows" in shown
    answer = editor.get(f"/batches/{second}/rows.csv")
    rows = list(csv.reader(io.StringIO(answer.text.lstrip("\ufeff"))))
    assert rows[:3] == [["row", "why"], ["3", "rendered before"], ["4", "same as row 1"]]
    assert len(rows) == 10


def test_typed_values_have_no_rows_to_show(editor: Browser, campaign: Campaign) -> None:
    made = editor.post(f"/campaigns/{campaign.id}/batches")
    assert "Rows of the table" not in editor.get(made.location).text


def test_the_quote_warns_of_words_that_the_model_does_not_know_and_can_be_launched(
    editor: Browser, campaign: Campaign
) -> None:
    batch = quote(editor, campaign, "a sunny beach,Oslo,gamers", "snow,PARIS,gamers")
    page = editor.get(f"/batches/{batch}").text
    warned = text_of(page[page.index('id="unknown"') :].partition("</section>")[0])
    assert "Words that Adloom Tiny (built in) does not know" in warned
    assert "geography Oslo It knows San Francisco" in warned
    assert "beach" not in warned and "PARIS" not in warned
    assert "Launch 2 renders" in page
    known = quote(editor, campaign, "beach,Paris,gamers")
    assert 'id="unknown"' not in editor.get(f"/batches/{known}").text
