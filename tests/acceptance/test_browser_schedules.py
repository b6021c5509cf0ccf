"""Schedules in a real browser: launch later, the next times live, the list, pause, run, undo."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from flask import Flask
from playwright.sync_api import Page, expect

from app.access import Actor
from app.db import Database
from app.models import Batch, Workspace
from app.services import batches
from tests.acceptance.conftest import PHONE
from tests.acceptance.pages import check_accessibility, follow, sign_in
from tests.factories import make_campaign
from tests.integration.batch_tools import make_spec

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
Shoot = Callable[[Page, str], None]


@pytest.fixture
def quoted(database: Database, workspace: Workspace, app: Flask) -> UUID:
    """A batch of 12 variants that waits for its launch."""
    with database.system_scope() as session:
        campaign = make_campaign(session, workspace_id=workspace.id)
    actor = Actor.system(workspace.id)
    with database.workspace_scope(actor) as session:
        batch: Batch = batches.create_batch(
            session, actor, campaign_id=campaign.id, spec=make_spec()
        )
    return batch.id


@pytest.mark.parametrize("viewport", [None, PHONE], ids=["desktop", "phone"])
def test_a_batch_is_scheduled_watched_paused_run_and_taken_back(
    open_page: OpenPage,
    take_screenshot: Shoot,
    email: str,
    quoted: UUID,
    viewport: dict[str, int] | None,
) -> None:
    page = open_page(
        timezone_id="America/New_York",
        **({"viewport": viewport} if viewport else {}),
    )
    sign_in(page, email)
    follow(page.get_by_role("link", name="Schedules"))
    expect(page.get_by_role("heading", name="Let it render while you sleep")).to_be_visible()
    check_accessibility(page)
    take_screenshot(page, "schedules-empty")

    page.goto(f"/batches/{quoted}")
    follow(page.get_by_role("link", name="Launch later"))
    # The zone is the one of the person's own clock.
    expect(page.get_by_label("Time zone")).to_have_value("America/New_York")
    times = page.locator("#times li")
    expect(times).to_have_count(1)
    expect(page.get_by_label("How many each time")).to_be_hidden()
    take_screenshot(page, "schedule-once")

    page.get_by_role("radio", name="Every …").check(force=True)
    expect(times).to_have_count(5)
    page.get_by_label("Time zone").fill("Asia/Kolkata")
    expect(times.first).to_contain_text("22:00")
    expect(times.first).to_contain_text("UTC+05:30")
    page.get_by_role("radio", name="Cron").check(force=True)
    page.get_by_label("Cron expression").fill("* * * * *")
    expect(page.locator("#times")).to_contain_text("5 minutes apart")
    page.get_by_label("Cron expression").fill("30 2 29 3 *")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    # Each year on that day; in 2026 the clocks skip the time.
    expect(times).to_have_count(5)

    page.get_by_role("radio", name="Every …").check(force=True)
    page.get_by_role("radio", name="The next ones").check(force=True)
    page.get_by_label("How many each time").fill("5")
    page.get_by_role("textbox", name="Done by").fill("06:00")
    page.get_by_label("Budget per night").fill("a lot")
    take_screenshot(page, "schedule-form")
    page.get_by_role("button", name="Schedule it").click()
    expect(page.get_by_text("'a lot' is no amount. Write the budget as a number")).to_be_visible()
    check_accessibility(page)
    page.get_by_label("Budget per night").fill("25")
    page.get_by_role("button", name="Schedule it").click()

    expect(page.get_by_role("heading", name="Sneakers")).to_be_visible()
    expect(page.get_by_text("Monday to Friday at 22:00, Europe/Berlin")).to_be_visible()
    expect(page.locator(".schedule-times li")).to_have_count(5)
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("status")).to_contain_text("Launched.")
    expect(page.get_by_text("5 of 12 variants")).to_be_visible()
    check_accessibility(page)
    take_screenshot(page, "schedule")

    page.get_by_placeholder("Why (optional)").fill("Sold out until May")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Sold out until May")).to_be_visible()
    page.get_by_role("link", name="Schedules").first.click()
    expect(page.get_by_text("Sold out until May")).to_be_visible()
    take_screenshot(page, "schedules-list")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".schedule-times li")).to_have_count(5)

    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("is deleted")).to_be_visible()
    take_screenshot(page, "schedules-undo")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("“Sneakers” is back")).to_be_visible()
    expect(page.locator(".schedule-times li")).to_have_count(5)
