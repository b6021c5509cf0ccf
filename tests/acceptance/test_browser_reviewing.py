"""What people do with finished variants, in a real browser: review, compare, export, render again.

The renders are made by hand here, so that no engine has to run.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.conftest import PHONE, Site
from tests.acceptance.pages import check_accessibility, follow, sign_in, wait_until_all_play

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("weights")]

Shoot = Callable[[Page, str], None]


@pytest.fixture
def site(web_site: Site) -> Site:
    return web_site


def test_variants_are_reviewed_by_keys_and_by_ticks_and_compared(
    open_page: Callable[..., Page], take_screenshot: Shoot, email: str, batch_id: UUID
) -> None:
    page = open_page()
    sign_in(page, email)
    page.goto(f"/batches/{batch_id}")
    take_screenshot(page, "batch-failures")
    check_accessibility(page)
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    # The keys act on the tile that has the focus.
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("a")
    expect(page.locator(".tile").nth(1)).to_have_class("tile is-approved")
    expect(page.locator(".tile__media").nth(1)).to_be_focused()
    page.keyboard.press(" ")
    page.keyboard.press("j")
    page.keyboard.press(" ")
    expect(page.get_by_text("2 ticked")).to_be_visible()
    take_screenshot(page, "selection")
    page.get_by_label("Comment, or why they are rejected").fill("too dark")
    page.locator(".selection-bar").get_by_role("button", name="Reject").click()
    expect(page.get_by_text("2 variants rejected.")).to_be_visible()
    expect(page.locator(".tile.is-rejected")).to_have_count(2)

    for tick in page.locator(".tile__tick input").all()[:4]:
        tick.check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare 4 variants")).to_be_visible()
    wait_until_all_play(page)
    page.get_by_role("button", name="Pause").click()
    times = page.evaluate("[...document.querySelectorAll('video')].map(v => v.currentTime)")
    assert max(times) - min(times) < 0.09, times
    take_screenshot(page, "compare")
    check_accessibility(page)


@pytest.mark.parametrize("viewport", [None, PHONE], ids=["desktop", "phone"])
def test_a_variant_is_rendered_again_and_the_batch_taken_home(
    open_page: Callable[..., Page],
    take_screenshot: Shoot,
    email: str,
    batch_id: UUID,
    viewport: dict[str, int] | None,
) -> None:
    page = open_page(**({"viewport": viewport} if viewport else {}))
    sign_in(page, email)
    page.goto(f"/batches/{batch_id}")
    take_screenshot(page, "batch-reviewing")
    page.locator(".tile__media").first.click()
    page.get_by_role("dialog").get_by_text("Render again, changed").click()
    take_screenshot(page, "lightbox-again")
    follow(page.get_by_role("dialog").get_by_role("link", name="Details"))
    page.get_by_text("Render again, changed").click()
    page.get_by_role("textbox", name="Prompt").fill("a blue sneaker on a beach, Paris")
    take_screenshot(page, "variant-again")
    check_accessibility(page)
    page.get_by_role("button", name="See the price").click()
    expect(page.get_by_role("button", name="Launch 1 render")).to_be_visible()

    page.goto(f"/batches/{batch_id}")
    follow(page.get_by_role("link", name="Export"))
    page.get_by_label("Names of the files").fill("{geography}")
    expect(page.locator("#names li").first).to_have_text("Paris.mp4")
    page.get_by_label("Names of the files").fill("{city}")
    expect(page.get_by_text("There is no {city} to name files by")).to_be_visible()
    page.get_by_label("Names of the files").fill("{geography}_")
    page.get_by_role("button", name="{size}").click()
    expect(page.locator("#names li").first).to_have_text("Paris_224x128.mp4")
    take_screenshot(page, "export")
    check_accessibility(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the ZIP").click()
    assert download.value.suggested_filename == "Sneaker-cities_Batch-1.zip"


@pytest.mark.parametrize("viewport", [None, PHONE], ids=["desktop", "phone"])
def test_a_batch_is_shared_with_somebody_who_has_no_account(
    open_page: Callable[..., Page],
    take_screenshot: Shoot,
    email: str,
    batch_id: UUID,
    viewport: dict[str, int] | None,
) -> None:
    options = {"viewport": viewport} if viewport else {}
    page = open_page(**options)
    sign_in(page, email)
    expect(page.get_by_text("5 to review")).to_be_visible()
    take_screenshot(page, "campaigns-waiting")
    check_accessibility(page)
    follow(page.get_by_role("link", name="Sneaker cities"))
    page.get_by_role("button", name="Archive").click()
    expect(page.get_by_text("is in the archive")).to_be_visible()
    take_screenshot(page, "campaigns-archived")
    page.get_by_role("button", name="Undo").click()
    follow(page.get_by_role("link", name="Sneaker cities"))
    take_screenshot(page, "campaign-actions")
    check_accessibility(page)
    follow(page.get_by_role("link", name="Batch 1"))
    follow(page.get_by_role("link", name="Share"))
    page.get_by_label("Whom it is for").fill("Acme")
    page.get_by_label("They may approve and reject").check()
    page.get_by_role("button", name="Make a link").click()
    link = page.get_by_label("Link, shown only this once").input_value()
    take_screenshot(page, "share")
    check_accessibility(page)

    outside = open_page(**options)
    outside.goto(link[link.index("/r/") :])
    expect(outside.locator("video")).to_have_count(5)
    first = outside.locator(".compare__item").first
    first.get_by_label("Comment on variant 1").fill("more sea")
    first.get_by_role("button", name="Reject").click()
    expect(first.get_by_text("Rejected")).to_be_visible()
    take_screenshot(outside, "shared")
    check_accessibility(outside)
