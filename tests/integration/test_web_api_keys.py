"""The page of API keys: shown once, listed with their last use, revoked; for owners alone."""

from __future__ import annotations

import re

import pytest
from flask import Flask

from app.access import Role
from app.config import Config
from app.db import Database
from app.models import Workspace
from tests.api import Api
from tests.web import Browser, make_app, make_member

PAGE = "/settings/api-keys"
FORM = {"name": "Nightly feed", "role": "editor", "expires": "90", "scopes": ["view", "edit"]}


@pytest.fixture
def app(config: Config) -> Flask:
    return make_app(config)


@pytest.fixture
def browser(app: Flask, database: Database, workspace: Workspace) -> Browser:
    """Signed in as the owner."""
    browser = Browser(app)
    browser.sign_in(make_member(database, workspace, Role.OWNER))
    return browser


def make(browser: Browser, **changes: object) -> str:
    browser.get(f"{PAGE}/new")
    response = browser.post(f"{PAGE}/new", {**FORM, **changes})
    assert response.status_code == 200, response.text
    assert response.headers["Cache-Control"] == "no-store"
    found = re.search(r">(adl_\w+)<", response.text)
    assert found is not None
    return found[1]


def test_a_workspace_without_keys_learns_what_they_are_for(browser: Browser) -> None:
    text = browser.get(PAGE).text
    assert "Make your first key" in text
    assert f'href="{PAGE}"' in browser.get("/").text


def test_a_key_is_shown_once_works_and_is_listed(app: Flask, browser: Browser) -> None:
    secret = make(browser)
    text = browser.get(PAGE).text
    assert secret not in text
    assert secret[:12] in text
    assert "Nightly feed" in text
    assert "last used never" in text
    answer = Api(app, secret).get("/account")
    assert answer.json["role"] == "editor"
    assert answer.json["scopes"] == ["edit", "view"]
    assert "last used never" not in browser.get(PAGE).text


def test_a_revoked_key_is_refused_at_once(app: Flask, browser: Browser) -> None:
    api = Api(app, make(browser))
    assert api.get("/account").status_code == 200
    found = re.search(rf'action="({PAGE}/[0-9a-f-]+/revoke)"', browser.get(PAGE).text)
    assert found is not None
    assert browser.post(found[1]).location == PAGE
    assert api.get("/account").status_code == 401
    assert "Revoked" in browser.get(PAGE).text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " "}, "Name the key"),
        ({"role": "king"}, "Choose what the key may do"),
        ({"expires": "7000"}, "Choose one of the times"),
        ({"role": "viewer", "scopes": ["launch"]}, "cannot do this"),
    ],
)
def test_a_form_that_cannot_be_used_comes_back(
    browser: Browser, changes: dict[str, object], message: str
) -> None:
    browser.get(f"{PAGE}/new")
    response = browser.post(f"{PAGE}/new", {**FORM, **changes})
    assert response.status_code == 400
    assert message in response.text
    assert "Make your first key" in browser.get(PAGE).text


def test_only_owners_see_and_make_keys(
    app: Flask, database: Database, workspace: Workspace
) -> None:
    browser = Browser(app)
    browser.sign_in(make_member(database, workspace, Role.EDITOR))
    for path in (PAGE, f"{PAGE}/new"):
        assert browser.get(path).status_code == 403
    browser.get("/")
    assert browser.post(f"{PAGE}/new", FORM).status_code == 403
    assert f'href="{PAGE}"' not in browser.get("/").text
