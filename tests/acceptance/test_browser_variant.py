"""The page of one variant in a real browser: it follows the render, and reviews in place.

The work is done by hand here, step by step, so that no engine has to run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from flask import Flask
from playwright.sync_api import Page, expect
from sqlalchemy import select

from app.db import Database
from app.models import JobPurpose, Variant
from app.services import expanding, in_flight, leases
from app.services.claimed import ClaimedGroup
from app.services.in_flight import InHand
from app.storage import Storage
from tests.acceptance.conftest import Site
from tests.acceptance.pages import make_clip, sign_in, wait_until_all_play
from tests.integration.gallery_tools import launch, store, succeed
from tests.web import Browser

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("weights")]


@pytest.fixture
def site(web_site: Site) -> Site:
    return web_site


@pytest.fixture
def group(app: Flask, database: Database, email: str) -> Callable[[], ClaimedGroup]:
    """Launches a batch of six variants; what it gives claims them."""
    browser = Browser(app)
    browser.sign_in(email)
    browser.get("/")
    batch_id = launch(browser)
    with database.system_scope() as session:
        while expanding.expand_chunk(session, batch_id):
            pass

    def claim() -> ClaimedGroup:
        with database.system_scope() as session:
            claimed = leases.claim(session, worker="worker")
        assert claimed is not None
        return claimed

    return claim


@pytest.fixture
def variant_id(group: object, database: Database) -> UUID:
    with database.system_scope() as session:
        return session.scalars(select(Variant.id).order_by(Variant.ordinal)).first()


def tell_steps(database: Database, claimed: ClaimedGroup, *, done: int) -> None:
    with database.system_scope() as session:
        in_hand = InHand(
            batch_id=claimed.jobs[0].batch_id,
            purpose=JobPurpose.FINAL,
            lease_token=claimed.token,
            job_count=len(claimed.jobs),
            group_count=len(claimed.jobs),
            steps_done=done,
            steps_planned=12 * len(claimed.jobs),
        )
        in_flight.report(session, worker="worker", in_hand=in_hand)


def test_the_page_of_a_variant_follows_its_render_from_waiting_to_the_playing_video(
    open_page: Callable[..., Page],
    email: str,
    group: Callable[[], ClaimedGroup],
    variant_id: UUID,
    database: Database,
    storage: Storage,
    tmp_path: Path,
) -> None:
    page = open_page()
    sign_in(page, email)
    page.goto(f"/variants/{variant_id}")
    expect(page.locator("#variant-state")).to_contain_text("Waiting")
    page.get_by_text("Render again, changed").click()
    page.get_by_role("textbox", name="Prompt").fill("a blue sneaker")
    claimed = group()
    assert variant_id in [job.variant_id for job in claimed.jobs]
    tell_steps(database, claimed, done=5)
    expect(page.locator("#variant-state")).to_contain_text("Rendering")
    expect(page.get_by_text("Step 5 of ")).to_be_visible()
    tell_steps(database, claimed, done=6)
    expect(page.get_by_text("Step 6 of ")).to_be_visible()
    with database.system_scope() as session:
        for number, job in enumerate(claimed.jobs):
            artifact = store(storage, tmp_path, number, make_clip(tmp_path, number))
            succeed(session, claimed, job.job_id, artifact)
    expect(page.locator("#variant-state")).to_contain_text("Finished")
    wait_until_all_play(page)
    expect(page.get_by_role("link", name="Download")).to_be_visible()
    page.get_by_text("How it was made").click()
    expect(page.get_by_text("SHA-256")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    # What was being typed beside it is still there, and nothing is asked for any more.
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("a blue sneaker")
    expect(page.locator("[data-live]")).to_have_count(0)


def test_a_review_on_the_page_of_a_variant_shows_at_once_and_leaves_the_console_clean(
    open_page: Callable[..., Page], email: str, batch_id: UUID, database: Database
) -> None:
    with database.system_scope() as session:
        wanted = select(Variant.id).where(Variant.batch_id == batch_id, Variant.ordinal == 0)
        reviewed = session.scalars(wanted).one()
    page = open_page()
    sign_in(page, email)
    page.goto(f"/variants/{reviewed}")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("#variant-state")).to_contain_text("Approved")
    expect(page.get_by_role("button", name="Approved")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Reject").click()
    expect(page.locator("#variant-state")).to_contain_text("Rejected")
    page.get_by_role("button", name="Rejected").click()
    expect(page.locator("#variant-state")).not_to_contain_text("Rejected")
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    expect(page.locator("h1")).to_have_text("Variant 2")
    page.wait_for_load_state()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("h1")).to_have_text("Variant 1")
