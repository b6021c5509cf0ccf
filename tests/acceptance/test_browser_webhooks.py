"""Webhooks in a real browser: add an endpoint, test it, see a failure, send it again."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect
from standardwebhooks import Webhook

from app.config import Config
from tests.acceptance.conftest import PHONE
from tests.acceptance.pages import follow
from tests.web import PASSWORD
from tests.webhook_receiver import Receiver, Reply, receiving

pytestmark = pytest.mark.browser


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, webhook_allowed_networks=(ipaddress.ip_network("127.0.0.0/8"),))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def set_up(page: Page) -> None:
    page.goto("/")
    page.get_by_label("Workspace").fill("Northwind Sports")
    page.get_by_label("Your name").fill("Ada Lund")
    page.get_by_label("Email").fill("ada@example.com")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create the workspace").click()


@pytest.mark.parametrize("viewport", [None, PHONE], ids=["desktop", "phone"])
def test_an_endpoint_is_added_tested_and_given_what_it_missed(
    open_page: Callable[..., Page],
    take_screenshot: Callable[[Page, str], None],
    receiver: Receiver,
    viewport: dict[str, int] | None,
) -> None:
    page = open_page(**({"viewport": viewport} if viewport else {}))
    set_up(page)
    page.get_by_text("Northwind Sports").last.click()
    follow(page.get_by_role("link", name="Webhooks"))
    expect(page.get_by_role("heading", name="Hear of it the moment it happens")).to_be_visible()
    take_screenshot(page, "webhooks-empty")

    follow(page.get_by_role("link", name="Add your first endpoint"))
    page.get_by_label("Address").fill("http://10.0.0.1/hook")
    page.get_by_role("button", name="Add the endpoint").click()
    expect(page.get_by_text("not on the public internet")).to_be_visible()
    take_screenshot(page, "webhooks-form")
    page.get_by_label("Address").fill(receiver.url("/hooks/adloom"))
    page.get_by_label("What it is for").fill("Posts finished batches to the team channel")
    page.get_by_role("button", name="Add the endpoint").click()
    secret = page.get_by_label("Signing secret").input_value()
    take_screenshot(page, "webhooks-secret")

    follow(page.get_by_role("link", name="I have copied it"))
    receiver.answer = lambda _: Reply(500, b'{"error": "no database"}')
    page.get_by_role("button", name="Send a test").click()
    # It comes without a reload.
    expect(page.get_by_text("Answered 500")).to_be_visible()
    expect(page.locator("#endpoint-state")).to_contain_text("Failing")
    take_screenshot(page, "webhooks-endpoint")
    Webhook(secret).verify(receiver.received[0].body, receiver.received[0].headers)

    follow(page.get_by_role("link", name="endpoint.ping"))
    expect(page.get_by_text("no database")).to_be_visible()
    receiver.answer = lambda _: Reply(200, b"thanks")
    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_role("heading", name="Attempt 2")).to_be_visible()
    expect(page.get_by_text("thanks")).to_be_visible()
    expect(page.locator("#delivery-state")).to_contain_text("Delivered")
    take_screenshot(page, "webhooks-delivery")
    page.get_by_role("link", name="Webhooks").first.click()
    expect(page.get_by_text("Posts finished batches")).to_be_visible()
    take_screenshot(page, "webhooks-list")
