"""A spend cap in a real browser: typed at the launch, reached, and raised on the same page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page, expect

from app.db import Database
from app.services import expanding
from tests.acceptance.conftest import DESKTOP, PHONE, TIMEOUT_MS, Site
from tests.acceptance.pages import check_accessibility, sign_in
from tests.integration.batch_tools import finish
from tests.integration.test_web_campaigns import create_batch
from tests.web import Browser as Client

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("weights")]


@pytest.fixture
def path(app: Flask, email: str) -> str:
    """The page of a batch that is quoted."""
    client = Client(app)
    client.sign_in(email)
    client.get("/")
    return create_batch(client)


@pytest.fixture
def page(chromium: Browser, web_site: Site, email: str) -> Iterator[Page]:
    context = chromium.new_context(base_url=web_site.url, viewport=DESKTOP)
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    sign_in(page, email)
    yield page
    context.close()


def test_a_cap_stops_a_batch_until_it_is_raised(
    page: Page, path: str, database: Database, take_screenshot: Callable[[Page, str], None]
) -> None:
    page.goto(path)
    page.get_by_text("Spend cap").click()
    page.get_by_label("Spend at most").fill("0.000001")
    check_accessibility(page)
    for viewport in (PHONE, DESKTOP):
        page.set_viewport_size(viewport)
        take_screenshot(page, "spend-cap-quote")
    page.get_by_role("button", name="Launch 6 renders").click()
    expect(page.get_by_role("heading", name="Gallery")).to_be_visible()
    with database.system_scope() as session:
        assert not expanding.expand_chunk(session, UUID(path.rpartition("/")[2]))
    finish(database)
    page.goto(path)
    expect(page.locator("#progress")).to_contain_text("above its spend cap of")
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    check_accessibility(page)
    for viewport in (PHONE, DESKTOP):
        page.set_viewport_size(viewport)
        take_screenshot(page, "spend-cap-reached")
    page.get_by_label("Spend at most").fill("500")
    page.get_by_role("button", name="Change the cap and go on").click()
    expect(page.get_by_text("The spend cap is changed. Going on.")).to_be_visible()
    expect(page.locator("#progress")).to_contain_text("Rendering")
