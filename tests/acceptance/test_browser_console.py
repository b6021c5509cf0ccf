"""No page leaves an error in the browser's console or breaks its own content policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.conftest import Site, is_fault
from tests.acceptance.pages import follow, sign_in

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("weights")]

TABLE = b"row_id,backdrop,place\n1,beach,Oslo\n2,hill,Rome\n"
# What the content policy refuses is told to the document, whatever the console makes of it.
WATCH_POLICY = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.sourceFile}`))"""


@pytest.fixture
def site(web_site: Site) -> Site:
    return web_site


@pytest.fixture
def page(open_page: Callable[..., Page], email: str) -> Iterator[Page]:
    """Signed in; every error in the console fails the test, files that are missing included."""
    page = open_page()
    page.add_init_script(WATCH_POLICY)
    found: list[str] = []
    page.on(
        "console",
        lambda item: (
            found.append(item.text) if item.type == "error" and is_fault(item.text) else None
        ),
    )
    sign_in(page, email)
    yield page
    assert found == []


def visit(page: Page, path: str) -> None:
    page.goto(path)
    page.wait_for_load_state("networkidle")


def test_making_a_campaign_and_pricing_a_table_leaves_the_console_clean(page: Page) -> None:
    visit(page, "/campaigns/new")
    page.get_by_label("Campaign name").fill("Sneaker cities")
    prompt = page.get_by_label("Prompt template")
    prompt.fill("a red sneaker on {{ backdrop }}, {{ geography }}")
    values = page.get_by_label("backdrop", exact=True)
    values.fill("a beach\na forest")
    # A field that was dragged larger has a style of its own, which is exchanged with its card.
    values.evaluate("field => { field.style.height = '300px' }")
    prompt.fill("a red sneaker on {{ backdrop }}, {{ geography }}, {{ time }}")
    expect(page.get_by_label("time", exact=True)).to_be_visible()
    expect(values).to_have_value("a beach\na forest")
    prompt.fill("a red sneaker on {{ backdrop }}, {{ geography")
    expect(page.locator("#prompt-error")).to_contain_text("is never closed")
    expect(page.get_by_text("once the prompt can be read")).to_be_visible()
    prompt.fill("a red sneaker on {{ backdrop }}, {{ geography }}")
    expect(page.locator("#prompt-error")).to_be_empty()
    page.get_by_role("button", name="Use a spreadsheet").click()
    table = {"name": "cities.csv", "mimeType": "text/csv", "buffer": TABLE}
    page.locator("input[type=file]").set_input_files([table])
    expect(page.get_by_role("heading", name="cities.csv")).to_be_visible()

    # The way on opens with the column that is missing.
    go_on = page.get_by_role("button", name="Go on to the quote")
    expect(go_on).to_be_disabled()
    expect(page.get_by_text("Choose a column for geography first.")).to_be_visible()
    page.get_by_label("Column for geography").select_option("place")
    expect(page.get_by_text("2 variants cost:")).to_be_visible()
    go_on.click()
    expect(page.get_by_role("button", name="Launch 2 renders")).to_be_visible()


def test_looking_at_a_batch_and_judging_it_leaves_the_console_clean(
    page: Page, batch_id: UUID
) -> None:
    visit(page, "/")
    visit(page, f"/batches/{batch_id}")
    page.get_by_text("How the work is shared").click()
    for tick in page.locator(".tile__tick input").all()[:2]:
        tick.check()
    page.locator(".selection-bar").get_by_role("button", name="Approve").click()
    expect(page.get_by_text("2 variants approved.")).to_be_visible()
    page.locator(".tile__media").nth(2).click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("dialog").get_by_role("button", name="Approved")).to_be_visible()
    follow(page.get_by_role("dialog").get_by_role("link", name="Details"))
    page.get_by_role("button", name="Approved").click()
    expect(page.locator("#variant-state")).not_to_contain_text("Approved")
    visit(page, f"/batches/{batch_id}")
    for tick in page.locator(".tile__tick input").all()[:2]:
        tick.check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare 2 variants")).to_be_visible()
    for path in (f"/batches/{batch_id}/export", f"/batches/{batch_id}/share"):
        visit(page, path)


def test_the_pages_of_settings_leave_the_console_clean(page: Page) -> None:
    for path in ("webhooks", "webhooks/new", "api-keys", "api-keys/new"):
        visit(page, f"/settings/{path}")
    visit(page, "/v1/docs")
