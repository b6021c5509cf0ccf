"""Files that the store lost, on the pages where people miss them, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from app.storage import Storage
from tests.acceptance.conftest import PHONE, Site
from tests.acceptance.pages import check_accessibility, sign_in

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("weights")]

Shoot = Callable[[Page, str], None]


@pytest.fixture
def site(web_site: Site) -> Site:
    return web_site


@pytest.mark.parametrize("viewport", [None, PHONE], ids=["desktop", "phone"])
def test_lost_files_are_told_in_the_gallery_and_before_an_export(
    open_page: Callable[..., Page],
    take_screenshot: Shoot,
    storage: Storage,
    email: str,
    batch_id: UUID,
    viewport: dict[str, int] | None,
) -> None:
    videos = sorted(key for key in storage.iter_keys("media/") if key.endswith(".mp4"))
    for key in videos[:2]:
        storage.delete(key)
        storage.delete(key.replace(".mp4", ".webp"))
    page = open_page(**({"viewport": viewport} if viewport else {}))
    sign_in(page, email)
    page.goto(f"/batches/{batch_id}")
    page.locator(".tiles").scroll_into_view_if_needed()
    expect(page.get_by_text("The picture is gone")).to_have_count(2)
    expect(page.get_by_text("2 of 5 files are no longer in the store.")).to_be_visible()
    take_screenshot(page, "lost-files-gallery")
    check_accessibility(page)
    page.get_by_text("All 5 finished variants shown here").click()
    expect(page.get_by_role("button", name="Contact sheet")).to_be_visible()

    page.goto(f"/batches/{batch_id}/export")
    expect(page.get_by_text("2 of 5 files are no longer in the store.")).to_be_visible()
    page.get_by_label("Names of the files").fill("{campaign}/{number}")
    expect(page.get_by_text("Folders are not kept: “/” becomes “-”.")).to_be_visible()
    take_screenshot(page, "lost-files-export")
    check_accessibility(page)
    page.get_by_role("button", name="Price rendering again").click()
    expect(page.get_by_text("gone or was never finished: 3 variants.")).to_be_visible()
    take_screenshot(page, "lost-files-quote")
