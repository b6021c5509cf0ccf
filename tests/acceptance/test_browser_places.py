"""Places in a real browser: suggestions by key and click, questions answered, phones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.conftest import DESKTOP, PHONE, Site
from tests.acceptance.pages import check_accessibility, sign_in

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("weights")]
PROMPT = "a sneaker in {{ geography }}"
FIELD = "#values-1"

OpenPage = Callable[..., Page]


@pytest.fixture
def site(web_site: Site) -> Site:
    return web_site


@pytest.fixture
def form(open_page: OpenPage, email: str) -> Page:
    """The form of a new campaign with one geography."""
    page = open_page()
    sign_in(page, email)
    page.goto("/campaigns/new")
    page.get_by_label("Prompt template").fill(PROMPT)
    expect(page.locator(FIELD)).to_be_visible()
    return page


def test_a_place_is_chosen_by_keys_and_another_by_a_click(
    form: Page, take_screenshot: Callable[[Page, str], None]
) -> None:
    field, options = form.locator(FIELD), form.locator("[data-suggestion]:visible")
    field.click()
    form.keyboard.type("Paris\nSan Fr")
    expect(options.first).to_have_attribute("data-suggestion", "San Francisco")
    form.keyboard.press("ArrowDown")
    expect(options.first).to_have_attribute("aria-selected", "true")
    expect(field).to_have_attribute("aria-activedescendant", "values-1-place-1")
    check_accessibility(form)
    take_screenshot(form, "places-suggestions")
    form.keyboard.press("Enter")
    expect(field).to_have_value("Paris\nSan Francisco")
    expect(options).to_have_count(0)
    form.keyboard.type("\nTok")
    expect(options.first).to_be_visible()
    form.keyboard.press("Escape")
    expect(options).to_have_count(0)
    form.keyboard.type("y")
    options.first.click()
    expect(field).to_have_value("Paris\nSan Francisco\nTokyo")
    expect(form.locator("#values-1-places")).to_contain_text("3 places known, with time zones")
    form.get_by_text("3 places known").click()
    check_accessibility(form)
    take_screenshot(form, "places-landmarks")
    form.get_by_role("button", name="landmark of geography").click()
    prompt = form.get_by_label("Prompt template")
    expect(prompt).to_have_value(f"{PROMPT} {{{{ geography | landmark }}}}")
    expect(form.locator(".samples")).to_contain_text("the Eiffel Tower")


def test_a_question_is_answered_by_one_click(
    form: Page, take_screenshot: Callable[[Page, str], None]
) -> None:
    form.locator(FIELD).fill("London\nFremont\nBay Area")
    places = form.locator("#values-1-places")
    expect(places).to_contain_text("Fremont: which one?")
    expect(places).to_contain_text("Bay Area: no place that Adloom knows")
    form.get_by_text("1 place known").click()
    check_accessibility(form)
    for viewport in (DESKTOP, PHONE):
        form.set_viewport_size(viewport)
        take_screenshot(form, "places-question")
    form.get_by_role("button", name="Fremont, California").click()
    expect(form.locator(FIELD)).to_have_value("London\nFremont, California\nBay Area")
    expect(places).to_contain_text("2 places known")
    expect(places).not_to_contain_text("which one?")
