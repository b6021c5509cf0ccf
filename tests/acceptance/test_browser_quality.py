"""The qualities beside a quote, and the switch to a closer one that costs less, in a browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from flask import Flask
from playwright.sync_api import Page, expect

from tests.acceptance.conftest import PHONE, Site
from tests.acceptance.pages import check_accessibility, sign_in
from tests.integration.test_web_campaigns import create_batch
from tests.web import Browser as Client

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("weights")]


@pytest.fixture
def site(web_site: Site) -> Site:
    return web_site


def test_a_closer_quality_that_costs_less_is_taken_with_one_press(
    app: Flask,
    open_page: Callable[..., Page],
    take_screenshot: Callable[[Page, str], None],
    email: str,
) -> None:
    client = Client(app)
    client.sign_in(email)
    client.get("/")
    path = create_batch(client, profile="consistent")
    page = open_page()
    sign_in(page, email)
    page.goto(path)
    expect(page.get_by_text("Faithful is cheaper for this batch")).to_be_visible()
    take_screenshot(page, "quote-quality")
    page.set_viewport_size(PHONE)
    take_screenshot(page, "quote-quality")
    check_accessibility(page)
    page.get_by_role("button", name="Switch to Faithful").click()
    expect(page.get_by_role("rowheader", name="Faithful chosen")).to_be_visible()
    expect(page.get_by_text("is cheaper for this batch")).to_have_count(0)
