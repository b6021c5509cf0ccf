"""The list of campaigns: found, copied, archived and taken back, with what waits for people."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest
from flask import Flask

from app.access import Role
from app.db import Database
from app.models import Campaign, Parameter, Workspace
from app.storage import Storage
from tests.factories import make_campaign, make_workspace
from tests.integration.gallery_tools import launch, render
from tests.integration.test_web_campaigns import FORM
from tests.web import Browser, make_member

pytestmark = pytest.mark.usefixtures("weights")


def add(editor: Browser, name: str, **changes: str) -> str:
    """The path of a saved campaign."""
    editor.get("/campaigns/new")
    return editor.post("/campaigns/new", FORM | {"name": name, "then": "save"} | changes).location


def names(page: str) -> list[str]:
    return re.findall(r'<h2><a href="/campaigns/[^"]+">([^<]+)</a></h2>', page)


def test_campaigns_are_found_by_words_of_their_name_and_brief(
    editor: Browser, database: Database
) -> None:
    add(editor, "Spring sneakers", brief="For 100% of runners")
    add(editor, "Autumn boots")
    with database.system_scope() as session:
        other = make_workspace(session)
        make_campaign(session, workspace_id=other.id, name="Spring of others")
    assert names(editor.get("/?q=SPRING").text) == ["Spring sneakers"]
    assert names(editor.get("/?q=runners+spring").text) == ["Spring sneakers"]
    # A per cent sign is a character like any other.
    assert names(editor.get("/?q=100%25").text) == ["Spring sneakers"]
    nothing = editor.get("/?q=winter").text
    assert names(nothing) == []
    assert "Nothing matches" in nothing


def test_an_archived_campaign_is_taken_back_by_undo_or_later(editor: Browser) -> None:
    path = add(editor, "Autumn boots")
    editor.get(path)
    page = editor.get(editor.post(f"{path}/archive").location).text
    assert "“Autumn boots” is in the archive." in page
    assert names(page) == []
    assert f'action="{path}/restore"' in page
    assert "show=archived" in page
    assert names(editor.get("/?show=archived").text) == ["Autumn boots"]
    back = editor.get(editor.post(f"{path}/restore").location).text
    assert names(back) == ["Autumn boots"]
    assert names(editor.get("/?show=archived").text) == []


def test_a_copy_has_prompt_values_and_settings_but_no_batches(
    editor: Browser, database: Database
) -> None:
    path = add(editor, "Autumn boots", seed="41")
    editor.get(path)
    editor.post(f"{path}/batches")
    editor.get(path)
    answer = editor.post(f"{path}/duplicate")
    assert 'value="Autumn boots (copy)"' in editor.get(answer.location).text
    copy_id = UUID(answer.location.split("/")[2])
    with database.system_scope() as session:
        copy = session.get_one(Campaign, copy_id)
        values = {p.name: p.values for p in session.query(Parameter).filter_by(campaign_id=copy_id)}
    assert copy.settings["seed"] == 41
    assert values == {"backdrop": ["a beach", "a forest"], "geography": ["Paris", "Tokyo", "Oslo"]}
    assert "No batch yet" in editor.get(f"/campaigns/{copy_id}").text


def test_a_card_says_what_waits_and_what_was_spent(
    editor: Browser, database: Database, storage: Storage, tmp_path: Path
) -> None:
    batch_id = launch(editor)
    ids = render(database, storage, tmp_path, batch_id, is_good=lambda ordinal: ordinal < 5)
    editor.get(f"/variants/{ids[0]}")
    editor.post(f"/variants/{ids[0]}/review", {"state": "approved"})
    page = editor.get("/").text
    assert "4 to review" in page
    assert "1 failed" in page
    # Five times 60 units at 100 micros.
    assert "$0.030 spent" in page


def test_viewers_neither_archive_nor_copy(
    app: Flask, editor: Browser, database: Database, workspace: Workspace
) -> None:
    path = add(editor, "Autumn boots")
    viewer = Browser(app)
    viewer.sign_in(make_member(database, workspace, Role.VIEWER))
    viewer.get("/")
    for verb in ("archive", "restore", "duplicate"):
        assert viewer.post(f"{path}/{verb}").status_code == 403
    assert names(viewer.get("/").text) == ["Autumn boots"]
