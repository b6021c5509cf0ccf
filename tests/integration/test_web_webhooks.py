"""The pages of webhooks: the secret shown once, the log of messages, and for owners alone."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from uuid import UUID

import pytest
from standardwebhooks import Webhook

from app.access import Role
from app.config import Config
from app.db import Database
from app.models import WebhookDisabledReason, WebhookEndpoint, Workspace
from tests.integration.webhook_tools import LOOPBACK, Desk
from tests.web import Browser, make_app, make_member
from tests.webhook_receiver import Receiver, Reply

EVENTS = ["batch.completed", "batch.failed"]


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, webhook_allowed_networks=LOOPBACK)


@pytest.fixture
def browser(config: Config, database: Database, workspace: Workspace) -> Browser:
    """Signed in as the owner."""
    browser = Browser(make_app(config))
    browser.sign_in(make_member(database, workspace, Role.OWNER))
    return browser


def add(browser: Browser, url: str) -> tuple[str, str]:
    """The page of a new endpoint, and its secret."""
    browser.get("/settings/webhooks/new")
    response = browser.post("/settings/webhooks/new", {"url": url, "event_types": EVENTS})
    assert response.status_code == 200, response.text
    secret = re.search(r">(whsec_[^<]+)<", response.text)
    page = re.search(r'href="(/settings/webhooks/[0-9a-f-]{36})"', response.text)
    assert secret is not None
    assert page is not None
    return page[1], html.unescape(secret[1])


def test_a_workspace_without_endpoints_learns_what_they_are_for(browser: Browser) -> None:
    text = browser.get("/settings/webhooks").text
    assert "Add your first endpoint" in text
    assert "Standard Webhooks" in text
    assert 'href="/settings/webhooks"' in browser.get("/").text


def test_the_secret_is_shown_once_and_verifies_the_test_message(
    browser: Browser, desk: Desk, receiver: Receiver
) -> None:
    page, secret = add(browser, receiver.url())
    assert secret not in browser.get(page).text
    browser.get(page)
    assert browser.post(f"{page}/ping").location == page
    desk.work()
    [message] = receiver.received
    assert Webhook(secret).verify(message.body, message.headers)["type"] == "endpoint.ping"
    text = browser.get(page).text
    assert "endpoint.ping" in text
    assert "Delivered" in text


def test_a_form_that_cannot_be_used_comes_back_as_it_was(browser: Browser) -> None:
    browser.get("/settings/webhooks/new")
    response = browser.post(
        "/settings/webhooks/new", {"url": "http://10.0.0.1/", "event_types": ["batch.failed"]}
    )
    assert response.status_code == 400
    assert "10.0.0.1 is inside a private network and not on the public internet" in response.text
    assert "WEBHOOK_ALLOWED_NETWORKS=10.0.0.1/32" in response.text
    assert response.text.count("public internet, so") == 1
    assert 'value="http://10.0.0.1/"' in response.text
    assert response.text.count(" checked") == 1
    assert "Add your first endpoint" in browser.get("/settings/webhooks").text


def test_a_failed_message_shows_its_attempts_and_can_be_sent_again(
    browser: Browser, desk: Desk, receiver: Receiver
) -> None:
    receiver.answer = lambda _: Reply(500, b"<b>no database</b>")
    page, _ = add(browser, receiver.url())
    desk.emit()
    desk.work()
    log = browser.get(page).text
    assert "Answered 500" in log
    assert "Next attempt in" in log
    found = re.search(r'href="(/settings/webhooks/deliveries/[0-9a-f-]+)"', log)
    assert found is not None
    details = browser.get(found[1]).text
    assert "&lt;b&gt;no database&lt;/b&gt;" in details
    assert "Attempt 1" in details
    assert "webhook-id: evt_" in details
    receiver.answer = lambda _: Reply()
    assert browser.post(f"{found[1]}/replay").location == found[1]
    desk.work()
    assert "Attempt 2" in browser.get(found[1]).text
    assert "Delivered" in browser.get(page).text


def test_what_was_missed_is_sent_again_from_the_page(
    browser: Browser, desk: Desk, receiver: Receiver
) -> None:
    page, _ = add(browser, receiver.url())
    browser.post(f"{page}/disable")
    desk.emit(3)
    desk.work()
    assert "3 messages" in browser.get(page).text
    assert receiver.received == []
    browser.post(f"{page}/enable")
    browser.get(page)
    browser.post(f"{page}/replay", {"since": "hour"})
    desk.work()
    assert len(receiver.received) == 3
    assert "?state=succeeded" in browser.get(page).text
    assert "No message is in this state" in browser.get(f"{page}?state=failed").text


def test_edit_rotate_and_delete(browser: Browser, receiver: Receiver) -> None:
    page, secret = add(browser, receiver.url())
    browser.get(f"{page}/edit")
    browser.post(
        f"{page}/edit",
        {"url": receiver.url("/new"), "description": "Team", "event_types": ["review.completed"]},
    )
    text = browser.get(page).text
    assert "/new" in text
    assert "review.completed" in text
    rotated = browser.post(f"{page}/rotate")
    assert "signs too for 24 hours" in rotated.text
    assert secret not in html.unescape(rotated.text)
    assert rotated.headers["Cache-Control"] == "no-store"
    browser.get(page)
    assert browser.post(f"{page}/rotate").status_code == 409
    browser.get(page)
    assert browser.post(f"{page}/rotate", {"at_once": "1"}).status_code == 200
    browser.get(page)
    assert browser.post(f"{page}/delete").location == "/settings/webhooks"
    assert browser.get(page).status_code == 404


def test_owners_see_on_every_page_that_an_endpoint_was_switched_off(
    browser: Browser, database: Database, desk: Desk, workspace: Workspace, config: Config
) -> None:
    endpoint_id, _ = desk.add_endpoint("http://127.0.0.1:9999/")
    with database.system_scope() as session:
        endpoint = session.get_one(WebhookEndpoint, endpoint_id)
        endpoint.disabled_at = endpoint.created_at
        endpoint.disabled_reason = WebhookDisabledReason.FAILING
    home = browser.get("/").text
    assert "were switched off" in home
    assert f"/settings/webhooks/{UUID(str(endpoint_id))}" in home
    viewer = Browser(make_app(config))
    viewer.sign_in(make_member(database, workspace, Role.VIEWER))
    assert "were switched off" not in viewer.get("/").text
    browser.get(f"/settings/webhooks/{endpoint_id}")
    browser.post(f"/settings/webhooks/{endpoint_id}/disable")
    assert "were switched off" not in browser.get("/").text


@pytest.mark.parametrize("role", [Role.EDITOR, Role.VIEWER])
def test_the_pages_are_for_owners_alone(
    config: Config, database: Database, workspace: Workspace, desk: Desk, role: Role
) -> None:
    endpoint_id, _ = desk.add_endpoint("http://127.0.0.1:9999/")
    member = Browser(make_app(config))
    member.sign_in(make_member(database, workspace, role))
    assert "/settings/webhooks" not in member.get("/").text
    for path in ("", "/new", f"/{endpoint_id}", f"/{endpoint_id}/edit"):
        assert member.get(f"/settings/webhooks{path}").status_code == 403
    member.get("/")
    for verb in ("ping", "rotate", "delete", "replay", "enable", "edit"):
        assert member.post(f"/settings/webhooks/{endpoint_id}/{verb}").status_code in (400, 403)
