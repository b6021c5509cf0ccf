"""Blocked terms in a browser: written down, met while a campaign is typed, read on a phone too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.conftest import DESKTOP, PHONE, Site
from tests.acceptance.pages import check_accessibility, follow, sign_in

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("weights")]

OpenPage = Callable[..., Page]


@pytest.fixture
def site(web_site: Site) -> Site:
    return web_site


@pytest.fixture(params=[DESKTOP, PHONE], ids=["desktop", "phone"])
def page(request: pytest.FixtureRequest, open_page: OpenPage, email: str) -> Page:
    """A page of an owner who is signed in."""
    page = open_page(viewport=request.param)
    sign_in(page, email)
    return page


def test_terms_are_written_and_met_in_a_campaign(
    page: Page, take_screenshot: Callable[[Page, str], None]
) -> None:
    page.locator(".site-header summary").click()
    follow(page.get_by_role("link", name="Blocked terms"))
    expect(page.get_by_role("heading", name="Keep what must not be said")).to_be_visible()
    take_screenshot(page, "blocked-terms-empty")
    check_accessibility(page)
    lines = "Globex | competitor name\nmiracle cure | legal: no health claims\nNestlé"
    page.get_by_label("Your first terms, one per line").fill(lines)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("3 terms are never rendered")).to_be_visible()
    expect(page.get_by_role("cell", name="competitor name")).to_be_visible()
    take_screenshot(page, "blocked-terms-list")

    page.goto("/campaigns/new")
    page.get_by_label("Prompt template").fill("a red sneaker in a GLOBEX store, {{ city }}")
    told = "The prompt: “Globex” (competitor name) is a blocked term"
    expect(page.locator("#prompt-error")).to_contain_text(told)
    take_screenshot(page, "blocked-terms-prompt")
    page.get_by_label("Prompt template").fill("a red sneaker in a store, {{ city }}")
    page.locator("#values-1").fill("Oslo\nnestle town")
    expect(page.get_by_text("city, value 2: “Nestlé” is a blocked term")).to_be_visible()

    page.get_by_label("Campaign name").fill("Spring")
    page.locator("#values-1").fill("Oslo\nsneaker city")
    page.get_by_role("button", name="Save").click()
    page.goto("/settings/blocked-terms")
    page.get_by_label("One term per line").fill(f"{lines}\nsneaker")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("1 campaign holds a blocked term")).to_be_visible()
    take_screenshot(page, "blocked-terms-in-use")
    page.get_by_label("One term per line").fill("Globex\nglobex")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("is the same as term 1")).to_be_visible()
    take_screenshot(page, "blocked-terms-refused")
    check_accessibility(page)
