"""The page and the API of blocked terms: who edits them, what they say, and what they refuse."""

from __future__ import annotations

import pytest
from flask import Flask

from app.access import Role
from app.db import Database
from app.models import Workspace
from tests.api import MEDIA_TYPE, Api, make_key
from tests.factories import make_campaign
from tests.web import Browser, make_member

pytestmark = pytest.mark.usefixtures("weights")

PAGE = "/settings/blocked-terms"
ORDER = {
    "prompt": "a red sneaker on {{ backdrop }}",
    "settings": {"num_frames": 5, "num_inference_steps": 4, "profile": "exact"},
}


def seen(page: str) -> str:
    return page.partition('name="seen" value="')[2].partition('"')[0]


def save(browser: Browser, terms: str) -> str:
    """What the page says after the lines were saved."""
    sent = {"terms": terms, "seen": seen(browser.get(PAGE).text)}
    assert browser.post(PAGE, sent).status_code == 302
    return browser.get(PAGE).text


@pytest.fixture
def api(app: Flask, database: Database, workspace: Workspace) -> Api:
    return Api(app, make_key(database, workspace))


class TestPage:
    def test_the_empty_page_teaches_and_lines_are_kept_with_their_reasons(
        self, editor: Browser
    ) -> None:
        assert "Keep what must not be said" in editor.get(PAGE).text
        page = save(editor, "Globex | competitor name\r\n\r\n  miracle   cure\r\n")
        assert "Saved. 2 terms are blocked from now on." in page
        assert "Globex | competitor name\nmiracle cure</textarea>" in page
        assert "<strong>Globex</strong></td><td>competitor name</td>" in page
        assert "Nothing is blocked now." in save(editor, "")

    def test_campaigns_that_hold_a_term_are_listed(
        self, editor: Browser, database: Database, workspace: Workspace
    ) -> None:
        with database.system_scope() as session:
            make_campaign(session, workspace_id=workspace.id)
        page = save(editor, "sneaker\nNew York")
        assert "1 campaign holds a blocked term" in page
        assert "The prompt: “sneaker” is a blocked term." in page
        assert "geography, value 3: “New York” is a blocked term." in page

    def test_a_line_that_cannot_be_used_comes_back_with_what_was_typed(
        self, editor: Browser
    ) -> None:
        save(editor, "Globex")
        sent = {"terms": "Acme\nacme", "seen": seen(editor.get(PAGE).text)}
        answer = editor.post(PAGE, sent)
        assert answer.status_code == 400
        assert "is the same as term 1" in answer.text
        assert "Acme\nacme</textarea>" in answer.text
        assert "<strong>Globex</strong>" in answer.text

    def test_two_who_edit_at_once_do_not_undo_each_other(self, editor: Browser) -> None:
        old = seen(editor.get(PAGE).text)
        save(editor, "Globex")
        answer = editor.post(PAGE, {"terms": "Acme", "seen": old})
        assert answer.status_code == 409
        assert "Somebody has changed the list" in answer.text
        assert editor.post(PAGE, {"terms": "Acme", "seen": seen(answer.text)}).status_code == 302

    def test_a_viewer_reads_the_list_and_has_no_form(
        self, app: Flask, editor: Browser, database: Database, workspace: Workspace
    ) -> None:
        save(editor, "Globex | rival")
        viewer = Browser(app)
        viewer.sign_in(make_member(database, workspace, Role.VIEWER))
        page = viewer.get(PAGE).text
        assert "<strong>Globex</strong>" in page
        assert "<textarea" not in page


class TestApi:
    def test_the_list_is_replaced_as_a_whole(self, api: Api) -> None:
        body = {"terms": [{"term": "Globex", "reason": "rival"}, {"term": "Acme"}]}
        assert api.send("PUT", "/blocked-terms", json=body).status_code == 200
        body = {"terms": [{"term": "Acme"}]}
        assert api.send("PUT", "/blocked-terms", json=body).status_code == 200
        (row,) = api.get("/blocked-terms").json["data"]
        assert (row["term"], row["reason"]) == ("Acme", "")

    @pytest.mark.parametrize(
        ("order", "field"),
        [
            ({**ORDER, "prompt": "a GLOBEX sneaker"}, "prompt"),
            (
                {**ORDER, "negative_prompt": "globex", "values": {"backdrop": "x"}},
                "negative_prompt",
            ),
            ({**ORDER, "values": {"backdrop": "a globex store"}}, "backdrop"),
        ],
    )
    def test_a_generation_with_a_term_is_refused_with_field_and_term(
        self, api: Api, order: dict[str, object], field: str
    ) -> None:
        body = {"terms": [{"term": "Globex", "reason": "rival"}]}
        api.send("PUT", "/blocked-terms", json=body)
        response = api.post("/generations", order)
        assert (response.status_code, response.mimetype) == (422, MEDIA_TYPE)
        problem = response.json
        assert (problem["code"], problem["field"]) == ("blocked_term", field)
        (found,) = problem["errors"]
        assert (found["field"], found["term"], found["reason"]) == (field, "Globex", "rival")
        assert api.get("/generations").json["data"] == []
