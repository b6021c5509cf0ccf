"""Drafts first, in a browser: priced, looked at, approved, finished, traced to their start.

The work is done by hand here, so that no engine has to run.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from app.access import Actor
from app.db import Database
from app.models import Batch
from app.services import batches, draft_states, expanding, leases
from app.services.draft_states import NewState
from app.services.specs import SpecSettings
from app.storage import Storage
from tests.acceptance.conftest import Site
from tests.acceptance.pages import check_accessibility, follow, make_clip, sign_in
from tests.factories import SETTINGS, make_campaign
from tests.integration.batch_tools import make_spec
from tests.integration.gallery_tools import store, succeed

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("weights")]

VALUES = {"backdrop": ["a beach", "a meadow"], "geography": ["paris"], "audience": ["kids"]}


@pytest.fixture
def site(web_site: Site) -> Site:
    return web_site


@pytest.fixture
def quoted(database: Database, actor: Actor) -> UUID:
    """A batch of two exact renders that nobody has launched."""
    with database.system_scope() as session:
        campaign = make_campaign(session, workspace_id=actor.workspace_id, values=VALUES)
    spec = make_spec(settings=SpecSettings(**SETTINGS))
    parameters = tuple(
        item.model_copy(update={"values": tuple(VALUES[item.name])}) for item in spec.parameters
    )
    with database.workspace_scope(actor) as session:
        batch = batches.create_batch(
            session,
            actor,
            campaign_id=campaign.id,
            spec=spec.model_copy(update={"parameters": parameters}),
        )
        return batch.id


@pytest.fixture
def render(database: Database, storage: Storage, tmp_path: Path) -> Callable[[], None]:
    """Renders all that was launched; drafts leave their states."""

    def render() -> None:
        with database.system_scope() as session:
            for batch in session.query(Batch).filter_by(state="expanding"):
                expanding.expand_chunk(session, batch.id)
        with database.system_scope() as session:
            while group := leases.claim(session, worker="worker"):
                for place, job in enumerate(group.jobs):
                    if job.settings.draft_step is not None:
                        state = NewState(
                            job_id=job.job_id, storage_key=f"drafts/{job.job_id}", step=2,
                            variant_key=job.variant_key, size_bytes=100_000,
                        )  # fmt: skip
                        kept = timedelta(days=7)
                        assert draft_states.record(session, state, token=group.token, keep_for=kept)
                    artifact = store(storage, tmp_path, place, make_clip(tmp_path, place))
                    succeed(session, group, job.job_id, artifact)

    return render


def test_drafts_are_launched_first_and_the_approved_ones_finished_at_the_price_of_the_rest(
    open_page: Callable[..., Page],
    email: str,
    quoted: UUID,
    render: Callable[[], None],
    take_screenshot: Callable[[Page, str], None],
) -> None:
    page = open_page()
    sign_in(page, email)
    page.goto(f"/batches/{quoted}")
    page.get_by_role("button", name="Price drafts first").click()
    expect(page.get_by_text("Finishing all of them later")).to_be_visible()
    take_screenshot(page, "drafts-quote")
    page.get_by_role("button", name="Launch 2 drafts").click()

    expect(page.get_by_role("heading", name="Drafts")).to_be_visible()
    render()
    page.reload()
    expect(page.get_by_text("The steps of 2 drafts are kept")).to_be_visible()
    page.get_by_text("All 2 finished variants shown here").click()
    page.get_by_role("button", name="Approve").last.click()
    take_screenshot(page, "drafts-batch")
    check_accessibility(page)
    page.get_by_role("button", name="Finish 2 approved drafts in full quality").click()

    expect(page.get_by_text("4 steps already computed by the drafts")).to_be_visible()
    take_screenshot(page, "drafts-promotion")
    check_accessibility(page)
    page.get_by_role("button", name="Launch 2 renders").click()
    expect(page.get_by_text("Finished from these drafts")).to_be_visible()
    render()
    page.reload()

    page.goto(page.locator("a[href^='/variants/']").first.get_attribute("href") or "")
    expect(page.get_by_text("Finished from the draft of variant 1")).to_be_visible()
    take_screenshot(page, "drafts-variant")
    follow(page.get_by_role("link", name="the draft of variant 1"))
    expect(page.get_by_text("In full quality:")).to_be_visible()
