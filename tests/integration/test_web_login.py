"""Set-up, sign-in, sessions and what a browser is told, over HTTP."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flask import Flask

from app.access import Role
from app.config import Config
from app.db import Database
from app.models import User, Workspace
from app.services import passwords, workspaces
from tests.web import PASSWORD, Browser, make_app, make_member

SETUP = {
    "workspace_name": "Northwind Sports",
    "owner_name": "Ada",
    "email": "ada@example.com",
    "password": PASSWORD,
}


@pytest.fixture
def app(config: Config) -> Flask:
    return make_app(config)


@pytest.fixture
def browser(app: Flask) -> Browser:
    return Browser(app)


def test_a_fresh_install_leads_to_the_set_up(browser: Browser) -> None:
    assert browser.get("/").location == "/login?next=/"
    assert browser.get("/login").location == "/setup"
    assert "Set up your workspace" in browser.get("/setup").text


def test_set_up_creates_workspace_and_owner_and_signs_in(
    browser: Browser, database: Database
) -> None:
    browser.get("/setup")
    response = browser.post("/setup", SETUP)
    assert response.location == "/"
    page = browser.get("/")
    assert "Northwind Sports" in page.text
    assert "Create your first campaign" in page.text
    with database.system_scope() as session:
        assert workspaces.has_any_workspace(session)


def test_the_set_up_asks_for_as_long_a_password_as_the_service(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "MIN_LENGTH", 14)
    text = browser.get("/setup").text
    assert 'minlength="14"' in text
    assert "At least 14 characters" in text


@pytest.mark.parametrize(("host", "is_told"), [("127.0.0.1:8000", True), ("ads.example", False)])
def test_only_the_machine_itself_is_told_where_the_demo_login_stands(
    config: Config, workspace: Workspace, host: str, is_told: bool
) -> None:
    url = f"http://{host}"
    page = Browser(make_app(replace(config, base_url=url))).get("/login", base_url=url)
    assert page.status_code == 200
    assert ("adloom up" in page.text) is is_told


def test_set_up_is_closed_once_there_is_a_workspace(browser: Browser) -> None:
    browser.get("/setup")
    browser.post("/setup", SETUP)
    assert browser.get("/setup").location == "/login"
    browser.get("/")
    second = browser.post("/setup", SETUP | {"email": "eve@example.com"})
    assert second.status_code == 409
    assert "already set up" in second.text


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("password", "short", "use at least 10"),
        ("email", "not an address", "is not an email address"),
        ("workspace_name", " ", "Give the workspace a name"),
    ],
)
def test_a_set_up_that_cannot_be_used_creates_nothing(
    browser: Browser, database: Database, field: str, value: str, message: str
) -> None:
    browser.get("/setup")
    response = browser.post("/setup", SETUP | {field: value})
    assert response.status_code == 400
    assert message in response.text
    # What was typed is still there, the password is not.
    assert "Ada" in response.text
    assert PASSWORD not in response.text
    with database.system_scope() as session:
        assert not workspaces.has_any_workspace(session)
        assert session.query(User).count() == 0


@pytest.fixture
def email(database: Database, workspace: Workspace) -> str:
    return make_member(database, workspace, Role.EDITOR)


def test_sign_in_leads_to_the_page_that_was_asked_for(browser: Browser, email: str) -> None:
    asked = browser.get("/campaigns/new")
    assert asked.location == "/login?next=/campaigns/new"
    browser.get(asked.location)
    response = browser.post(
        "/login", {"email": email, "password": PASSWORD, "next": "/campaigns/new"}
    )
    assert response.location == "/campaigns/new"
    assert browser.get("/campaigns/new").status_code == 200


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"]
)
def test_sign_in_leads_to_no_other_site(browser: Browser, email: str, target: str) -> None:
    browser.get("/login")
    response = browser.post("/login", {"email": email, "password": PASSWORD, "next": target})
    assert response.location == "/"


def test_a_wrong_password_says_no_more_than_that(browser: Browser, email: str) -> None:
    browser.get("/login")
    known = browser.post("/login", {"email": email, "password": "wrong password"})
    unknown = browser.post("/login", {"email": "nobody@example.com", "password": "wrong password"})
    assert known.status_code == unknown.status_code == 401
    assert "The address or the password is wrong." in known.text
    assert "The address or the password is wrong." in unknown.text
    assert browser.get("/").status_code == 302


def test_guessing_is_slowed_down(browser: Browser, email: str) -> None:
    browser.get("/login")
    for _ in range(8):
        browser.post("/login", {"email": email, "password": "wrong password"})
    response = browser.post("/login", {"email": email, "password": PASSWORD})
    assert response.status_code == 429
    assert "Too many tries" in response.text


def test_the_session_is_a_new_one_after_sign_in(browser: Browser, email: str) -> None:
    browser.get("/login")
    before = browser.token
    browser.sign_in(email)
    browser.get("/")
    # The CSRF secret is part of the session: the token from before no longer fits.
    response = browser.client.post("/logout", data={"csrf_token": before})
    assert response.status_code == 400
    assert browser.get("/").status_code == 200


def test_signing_out_ends_the_session(browser: Browser, email: str) -> None:
    browser.sign_in(email)
    browser.get("/")
    assert browser.post("/logout").location == "/login"
    assert browser.get("/").status_code == 302


def test_signing_out_everywhere_ends_other_sessions(
    browser: Browser, email: str, database: Database
) -> None:
    browser.sign_in(email)
    assert browser.get("/").status_code == 200
    with database.system_scope() as session:
        user = session.query(User).filter_by(email=email).one()
        workspaces.sign_out_everywhere(session, user.id)
    assert browser.get("/").status_code == 302


def test_a_post_without_a_token_is_refused(browser: Browser, email: str) -> None:
    browser.sign_in(email)
    response = browser.client.post("/campaigns/new", data={"name": "x"})
    assert response.status_code == 400
    assert "Reload it and try again" in response.text


def test_a_forged_session_is_nobody(browser: Browser, email: str) -> None:
    browser.sign_in(email)
    cookie = browser.client.get_cookie("adloom_session")
    assert cookie is not None
    assert cookie.http_only
    assert cookie.same_site == "Lax"
    browser.client.set_cookie("adloom_session", cookie.value[:-4] + "AAAA")
    assert browser.get("/").status_code == 302


def test_pages_carry_the_policy_and_no_inline_script(browser: Browser, email: str) -> None:
    browser.sign_in(email)
    response = browser.get("/campaigns/new")
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cache-Control"] == "private, no-cache"
    assert "<style" not in response.text
    assert " style=" not in response.text
    assert " onclick" not in response.text


def test_static_files_may_be_kept_and_change_their_address(browser: Browser, email: str) -> None:
    browser.sign_in(email)
    page = browser.get("/").text
    address = page.split('rel="stylesheet" href="')[1].split('"')[0]
    assert "?v=" in address
    assert "immutable" in browser.get(address).headers["Cache-Control"]


def test_unknown_pages_help_people_on(browser: Browser) -> None:
    response = browser.get("/no/such/page")
    assert response.status_code == 404
    assert "All campaigns" in response.text


def test_a_host_that_is_not_ours_is_refused(app: Flask) -> None:
    response = app.test_client().get("/login", headers={"Host": "evil.example"})
    assert response.status_code == 400


def test_health_and_readiness(browser: Browser) -> None:
    assert browser.get("/healthz").json == {"status": "ok"}
    ready = browser.get("/readyz")
    assert ready.status_code == 200
    assert ready.json == {"status": "ok", "checks": {"database_app": "ok", "database_system": "ok"}}


def test_not_ready_without_tables(empty_config: Config) -> None:
    response = make_app(empty_config).test_client().get("/readyz")
    assert response.status_code == 503
    assert response.json is not None
    assert response.json["status"] == "unavailable"


def test_requests_keep_a_harmless_id_and_replace_a_harmful_one(browser: Browser) -> None:
    kept = browser.get("/healthz", headers={"X-Request-ID": "from-the-proxy-1"})
    assert kept.headers["X-Request-ID"] == "from-the-proxy-1"
    replaced = browser.get("/healthz", headers={"X-Request-ID": "a b<script>"})
    assert replaced.headers["X-Request-ID"] != "a b<script>"
