"""The editor of rules in a real browser: a row by keys, the count that follows, a phone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.conftest import DESKTOP, PHONE, Site
from tests.acceptance.pages import check_accessibility, sign_in

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("weights")]

OpenPage = Callable[..., Page]


@pytest.fixture
def site(web_site: Site) -> Site:
    return web_site


@pytest.fixture
def form(open_page: OpenPage, email: str) -> Page:
    """The form of a new campaign with two placeholders."""
    page = open_page()
    sign_in(page, email)
    page.goto("/campaigns/new")
    page.get_by_label("Prompt template").fill("a sneaker on {{ backdrop }} in {{ geography }}")
    page.locator("#values-1").fill("beach\nforest")
    page.locator("#values-2").fill("Denver\nParis\nTokyo")
    return page


def test_a_rule_changes_the_count_and_goes_again(
    form: Page, take_screenshot: Callable[[Page, str], None]
) -> None:
    figure = form.locator(".headline-figure")
    expect(figure).to_have_text("6")
    form.get_by_role("button", name="Add a rule").press("Enter")
    first = form.get_by_label("These variants")
    expect(first).to_be_focused()
    first.select_option("Denver")
    form.get_by_label("With this").select_option("beach")
    expect(figure).to_have_text("5")
    expect(form.locator("#preview")).to_contain_text("− 1 left out")
    form.get_by_label("How they go together").select_option("only with")
    form.get_by_label("With this").select_option("forest")
    expect(figure).to_have_text("5")
    form.get_by_role("button", name="Add a rule").click()
    check_accessibility(form)
    for viewport in (DESKTOP, PHONE):
        form.set_viewport_size(viewport)
        take_screenshot(form, "rules")
    form.locator("#values-2").fill("Paris\nTokyo")
    expect(form.locator("#rules-error")).to_contain_text("which is no value of geography")
    expect(first.first).to_contain_text("Denver (not among the values)")
    form.get_by_role("button", name="Remove this rule").first.click()
    expect(figure).to_have_text("4")
    form.get_by_role("radio", name="Line by line").check()
    expect(form.get_by_role("button", name="Add a rule")).to_be_hidden()
