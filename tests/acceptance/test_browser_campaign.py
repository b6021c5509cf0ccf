"""The whole path in a real browser: set-up, campaign, quote, launch, progress, gallery, review."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.conftest import PHONE
from tests.acceptance.pages import follow
from tests.web import PASSWORD

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Page]
Shoot = Callable[[Page, str], None]
PROMPT = "a red sneaker on {{ backdrop }}, {{ geography }}, for {{ audience }}"


def set_up(page: Page, shoot: Shoot) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="Set up your workspace")).to_be_visible()
    shoot(page, "setup")
    page.get_by_label("Workspace").fill("Northwind Sports")
    page.get_by_label("Your name").fill("Ada Lund")
    page.get_by_label("Email").fill("ada@example.com")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create the workspace").click()
    expect(page.get_by_role("heading", name="Start with one idea")).to_be_visible()
    shoot(page, "campaigns-empty")


def write_campaign(page: Page, shoot: Shoot) -> None:
    follow(page.get_by_role("link", name="Create your first campaign"))
    shoot(page, "campaign-new-empty")
    page.get_by_label("Campaign name").fill("Sneaker launch, spring cities")
    page.get_by_label("Prompt template").fill("a red sneaker on")
    # The buttons write placeholders, and a card for each appears.
    page.get_by_role("button", name="backdrop", exact=True).click()
    expect(page.get_by_label("Prompt template")).to_have_value("a red sneaker on {{ backdrop }}")
    page.get_by_label("Prompt template").fill(PROMPT)
    expect(page.get_by_label("audience", exact=True)).to_be_visible()
    for value in ("beach", "forest", "snow"):
        page.get_by_role("button", name=value, exact=True).click()
    page.get_by_label("geography", exact=True).fill("Paris\nTokyo")
    page.get_by_role("button", name="young runners").click()
    page.get_by_role("button", name="families").click()
    preview = page.locator("#preview")
    expect(preview.locator(".headline-figure")).to_have_text("12")
    expect(preview.locator(".slot.kind--geography").first).to_have_text("Paris")
    expect(page.locator('[data-preset="Paris"]')).to_have_attribute("aria-pressed", "true")
    shoot(page, "campaign-new")


def see_price(page: Page, shoot: Shoot) -> None:
    page.get_by_role("button", name="See the price").click()
    expect(page.get_by_role("button", name="Launch 12 renders")).to_be_visible()
    shoot(page, "quote")


def watch_to_the_end(page: Page, shoot: Shoot) -> None:
    page.get_by_role("button", name="Launch 12 renders").click()
    expect(page.locator("#tiles-0 .tile")).to_have_count(12)
    expect(page.locator(".tile img").first).to_be_visible(timeout=240_000)
    page.evaluate("window.isStillHere = true")
    shoot(page, "batch-running")
    expect(page.locator("#progress .headline-figure")).to_have_text("100%", timeout=240_000)
    expect(page.locator(".tile img")).to_have_count(12)
    expect(page.get_by_role("link", name="Export")).to_be_visible()
    expect(page.get_by_text("12 to review")).to_be_visible()
    # All of it came without a reload, and the polling ends.
    assert page.evaluate("window.isStillHere")
    expect(page.locator("[hx-trigger^='every']")).to_have_count(0)
    shoot(page, "batch-done")


def wait_until_it_plays(page: Page) -> None:
    """Until the open video has really moved on, not only been asked to."""
    video = page.locator("dialog video")
    expect(video).to_have_js_property("paused", value=False)
    for _ in range(200):
        if video.evaluate("video => video.currentTime") > 0.2:
            return
        page.wait_for_timeout(50)
    pytest.fail("the video does not play")


def review(page: Page, shoot: Shoot) -> None:
    first = page.locator(".tile__media").first
    first.hover()
    expect(page.locator(".tile__preview")).to_have_count(1)
    first.click()
    lightbox = page.get_by_role("dialog")
    expect(lightbox.get_by_role("heading", name="Variant 1", exact=True)).to_be_visible()
    wait_until_it_plays(page)
    # Byte ranges let the browser seek.
    assert page.evaluate("document.querySelector('dialog video').seekable.end(0)") > 1
    shoot(page, "lightbox")
    page.keyboard.press("a")
    expect(lightbox.get_by_role("button", name="Approved")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(lightbox.get_by_role("heading", name="Variant 2", exact=True)).to_be_visible()
    page.keyboard.press("r")
    expect(lightbox.get_by_role("button", name="Rejected")).to_be_visible()
    page.keyboard.press("Escape")
    expect(lightbox).to_be_hidden()
    expect(page.locator(".tile.is-approved")).to_have_count(1)
    expect(page.locator(".tile.is-rejected")).to_have_count(1)
    shoot(page, "gallery-reviewed")


def narrow_the_gallery(page: Page) -> None:
    page.get_by_label("geography").select_option("Tokyo")
    expect(page.locator(".tile")).to_have_count(6)
    expect(page).to_have_url(re.compile("geography=Tokyo"))
    page.get_by_label("Show").select_option("Approved")
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    follow(page.get_by_role("link", name="Show all"))
    expect(page.locator(".tile")).to_have_count(12)


def look_at_a_variant(page: Page, shoot: Shoot) -> None:
    page.locator(".tile__media").first.click()
    follow(page.get_by_role("dialog").get_by_role("link", name="Details"))
    expect(page.get_by_text("How it was made", exact=True)).to_be_visible()
    shoot(page, "variant")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "variant-1.mp4"


def look_around(page: Page, shoot: Shoot) -> None:
    follow(page.get_by_role("link", name="Adloom, all campaigns"))
    expect(page.locator(".campaign img")).to_be_visible()
    shoot(page, "campaigns")
    follow(page.get_by_role("link", name="Sneaker launch, spring cities"))
    shoot(page, "campaign")
    follow(page.get_by_role("link", name="Upload a spreadsheet"))
    shoot(page, "upload")
    rows = "row_id,backdrop,geo,audience,notes\n" + "\n".join(
        f"{number},{backdrop},{city},young runners,flight {number}"
        for number, (backdrop, city) in enumerate(
            [("beach", "Paris"), ("forest", "Tokyo"), ("snow", "Sydney")], 1
        )
    )
    page.locator("#file").set_input_files(
        {"name": "cities.csv", "mimeType": "text/csv", "buffer": rows.encode()}
    )
    expect(page.get_by_role("heading", name="cities.csv")).to_be_visible()
    expect(page.get_by_label("Column for geography")).to_have_value("geo")
    shoot(page, "upload-mapping")
    page.goto("/nowhere")
    shoot(page, "error-404")


def test_from_set_up_to_reviewed_videos_on_a_desktop(
    open_page: OpenPage, take_screenshot: Shoot
) -> None:
    page = open_page()
    set_up(page, take_screenshot)
    write_campaign(page, take_screenshot)
    see_price(page, take_screenshot)
    watch_to_the_end(page, take_screenshot)
    review(page, take_screenshot)
    narrow_the_gallery(page)
    look_at_a_variant(page, take_screenshot)
    look_around(page, take_screenshot)


def test_from_set_up_to_a_playing_video_on_a_phone(
    open_page: OpenPage, take_screenshot: Shoot
) -> None:
    page = open_page(viewport=PHONE, has_touch=True, is_mobile=True)
    set_up(page, take_screenshot)
    write_campaign(page, take_screenshot)
    see_price(page, take_screenshot)
    watch_to_the_end(page, take_screenshot)
    page.locator(".tile__media").first.tap()
    wait_until_it_plays(page)
    take_screenshot(page, "lightbox")
    page.get_by_role("button", name="Close").tap()
    look_around(page, take_screenshot)
