"""The campaign form while it is filled in: count, errors that go, words to click, other models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.conftest import PHONE, Site
from tests.acceptance.pages import check_accessibility, sign_in

pytestmark = pytest.mark.browser
PROMPT = "a sneaker on {{ backdrop }} in {{ geography }}"

OpenPage = Callable[..., Page]


@pytest.fixture
def site(web_site: Site) -> Site:
    return web_site


@pytest.fixture
def form(open_page: OpenPage, weights: Path, email: str) -> Page:
    """The form of a new campaign, where two models are installed."""
    second = weights.parent / "flux.1-dev"
    second.mkdir()
    (second / "model_index.json").write_text("{}")
    page = open_page()
    sign_in(page, email)
    page.goto("/campaigns/new")
    return page


def test_words_that_the_model_knows_go_where_one_typed_last(form: Page) -> None:
    form.get_by_text("What Adloom Tiny (built in) knows").click()
    check_accessibility(form)
    form.get_by_label("Prompt template").fill("a")
    form.locator("[data-word='sneaker']").click()
    expect(form.get_by_label("Prompt template")).to_have_value("a sneaker")
    form.get_by_label("Prompt template").fill(PROMPT)
    form.locator("#values-1").click()
    form.locator("[data-word='beach']").click()
    form.locator("[data-word='snow']").click()
    expect(form.locator("#values-1")).to_have_value("beach\nsnow")
    beach = form.locator("[data-preset='beach']")
    form.locator("#values-1").fill("a Beach\nsnow")
    expect(beach).to_have_attribute("aria-pressed", "true")
    beach.click()
    expect(form.locator("#values-1")).to_have_value("snow")
    expect(beach).to_have_attribute("aria-pressed", "false")


def test_the_count_turns_red_as_soon_as_a_batch_would_be_too_large(form: Page) -> None:
    form.get_by_label("Prompt template").fill(PROMPT)
    form.locator("#values-1").fill("\n".join(map(str, range(150))))
    form.locator("#values-2").fill("\n".join(map(str, range(150))))
    expect(form.locator(".headline-figure--over")).to_have_text("22,500")
    expect(form.locator("#overrun")).to_contain_text("this workspace allows 10,000 per batch")
    for number in (1, 2):
        expect(form.locator(f"#values-{number}")).to_have_attribute("aria-invalid", "true")
        expect(form.locator(f"#values-{number}-error")).to_contain_text("fewer of these values")
    beside_the_values = form.locator("#variant-count", has_text="22,500 variants")
    expect(beside_the_values).to_be_hidden()
    form.set_viewport_size(PHONE)
    expect(beside_the_values).to_be_visible()
    form.locator("#values-2").fill("Paris")
    expect(form.locator(".headline-figure")).to_have_text("150")
    expect(form.locator(".headline-figure--over")).to_have_count(0)
    expect(form.locator("[aria-invalid=true]")).to_have_count(0)


def test_the_red_of_a_field_goes_once_it_is_mended(form: Page) -> None:
    form.get_by_label("Prompt template").fill(PROMPT)
    form.locator("#values-1").fill("beach")
    form.locator("#values-2").fill("Paris")
    form.get_by_role("button", name="See the price").click()
    invalid = form.locator("[aria-invalid=true]")
    expect(invalid).to_have_attribute("id", "name")
    form.get_by_label("Campaign name").fill("Sneakers")
    expect(invalid).to_have_count(0)
    expect(form.locator("#name-error")).to_have_count(0)
    form.locator("#values-2").fill("x" * 10_000)
    expect(invalid).to_have_attribute("id", "values-2")
    expect(form.locator("#values-2-error")).to_contain_text("10,000 characters")
    form.locator("#values-2").fill("Paris")
    expect(invalid).to_have_count(0)
    form.get_by_label("Prompt template").fill(PROMPT + " {{ a + 1 }}")
    expect(invalid).to_have_attribute("id", "prompt")
    form.get_by_label("Prompt template").fill(PROMPT)
    expect(invalid).to_have_count(0)


def test_another_model_brings_its_formats_outputs_and_words(form: Page) -> None:
    form.get_by_label("Prompt template").fill(PROMPT)
    expect(form.locator("[data-preset='Paris']")).to_be_visible()
    form.locator("#values-2").fill("Paris")
    form.get_by_label("Model", exact=True).select_option("flux.1-dev")
    expect(form.locator("#render-options")).to_contain_text("896 × 1120")
    expect(form.get_by_role("radio", name="Image")).to_be_checked()
    expect(form.locator("[data-word], [data-preset]")).to_have_count(0)
    expect(form.locator("#values-2")).to_have_value("Paris")
    form.get_by_label("Model", exact=True).select_option("adloom-tiny")
    expect(form.locator("#render-options")).to_contain_text("128 × 160")
    expect(form.get_by_role("radio", name="Image")).to_be_checked()
