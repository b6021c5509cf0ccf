"""Spreadsheets in a real browser: dropped or chosen, by keyboard, on a phone, without scripts."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from playwright.sync_api import FileChooser, Page, Route, expect
from sqlalchemy import update

from app.access import Role
from app.db import Database
from app.models import Workspace
from tests.acceptance.conftest import PHONE, Site
from tests.acceptance.pages import follow
from tests.factories import make_campaign
from tests.web import PASSWORD, make_member

pytestmark = pytest.mark.browser

OpenPage = Callable[..., Page]
Shoot = Callable[[Page, str], None]
HEADER = "row_id,backdrop,geo,audience,start_date,notes\n"
MESSY = (
    "\ufeff" + HEADER + "r1,beach, Paris ,young runners,01/02/25,flight 1\n"
    "\nr2,forest,New\u00a0York,families,03/04/25,flight 2\n"
)
NEWER = HEADER + "r1,beach,Oslo,young runners,01/02/25,flight 1\nr3,snow,Rome,gamers,,\n"


@pytest.fixture
def site(web_site: Site) -> Site:
    return web_site


@pytest.fixture
def campaign_id(database: Database, workspace: Workspace) -> UUID:
    with database.system_scope() as session:
        values: dict[str, list[str]] = {"backdrop": [], "geography": [], "audience": []}
        return make_campaign(session, workspace_id=workspace.id, values=values).id


@pytest.fixture
def open_upload(
    database: Database, workspace: Workspace, campaign_id: UUID, open_page: OpenPage
) -> OpenPage:
    """The upload page of a campaign, signed in."""
    email = make_member(database, workspace, Role.EDITOR)

    def open_upload(**options: object) -> Page:
        page = open_page(**options)
        page.goto("/login")
        page.get_by_label("Email").fill(email)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/")
        page.goto(f"/campaigns/{campaign_id}/upload")
        return page

    return open_upload


def choose(page: Page, name: str, content: bytes) -> None:
    page.locator("#file").set_input_files(
        {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    )


def drop(page: Page, name: str, content: str) -> None:
    """Drop a file on the zone, as a hand would."""
    data = page.evaluate_handle(
        "([name, text]) => { const data = new DataTransfer();"
        " data.items.add(new File([text], name)); return data; }",
        [name, content],
    )
    page.dispatch_event("[data-dropzone]", "dragenter", {"dataTransfer": data})
    expect(page.locator("[data-dropzone].is-over")).to_be_visible()
    page.dispatch_event("[data-dropzone]", "drop", {"dataTransfer": data})


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE, "has_touch": True}])
def test_a_messy_file_is_dropped_mended_mapped_and_replaced_by_a_newer_one(
    open_upload: OpenPage, take_screenshot: Shoot, options: dict[str, object]
) -> None:
    page = open_upload(**options)
    take_screenshot(page, "uploads-new")
    drop(page, "cities.csv", MESSY)
    expect(page.get_by_role("heading", name="cities.csv")).to_be_visible()
    expect(page.get_by_label("Column for geography")).to_have_value("geo")
    expect(page.get_by_text("Kept beside each video")).to_contain_text("start_date, notes")
    expect(page.get_by_text("In “start_date”, what comes first in 01/02/25?")).to_be_visible()
    expect(page.get_by_role("heading", name="What was mended")).to_be_visible()
    take_screenshot(page, "uploads-mapping")
    page.get_by_role("radio", name="The day").check()
    page.get_by_role("button", name="Read it again this way").click()
    expect(page.get_by_role("cell", name="2025-02-01").first).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Mended table as CSV").click()
    assert download.value.suggested_filename == "cities-mended.csv"
    follow(page.get_by_role("link", name="Upload another file"))
    choose(page, "cities2.csv", NEWER.encode())
    expect(page.get_by_role("heading", name="What changes")).to_be_visible()
    expect(page.get_by_text("Added: r3")).to_be_visible()
    expect(page.get_by_text("Removed: r2")).to_be_visible()
    page.get_by_text("See the changed cells").click()
    expect(page.get_by_role("cell", name="Oslo").first).to_be_visible()
    take_screenshot(page, "uploads-changes")


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE, "has_touch": True}])
def test_a_file_without_a_header_is_asked_about_with_the_keyboard_alone(
    open_upload: OpenPage, take_screenshot: Shoot, options: dict[str, object]
) -> None:
    page = open_upload(**options)
    choosers: list[FileChooser] = []
    page.on("filechooser", lambda chooser: choosers.append(chooser))
    page.locator("#file").focus()
    # A page that was just opened passes over keys for a moment.
    for _ in range(20):
        page.keyboard.press("Space")
        page.wait_for_timeout(500)
        if choosers:
            break
    rows = b"beach,Paris,runners\nforest,Rome,families\nbeach,Oslo,gamers\n"
    choosers[0].set_files({"name": "bare.csv", "mimeType": "text/csv", "buffer": rows})
    expect(page.get_by_text("What is the first line of this file?")).to_be_visible()
    take_screenshot(page, "uploads-question")
    page.get_by_label("It is the first row").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(
        page.get_by_role("heading", name="Which column fills which placeholder?")
    ).to_be_visible()
    expect(page.get_by_label("Column for geography")).to_have_value("")


def test_a_file_chosen_before_the_scripts_came_is_checked_as_well(open_upload: OpenPage) -> None:
    page = open_upload()
    waiting: list[Route] = []
    page.route("**/js/dropzone.js*", lambda route: waiting.append(route))
    with page.expect_request("**/js/dropzone.js*"):
        page.reload(wait_until="commit")
    choose(page, "cities.csv", NEWER.encode())
    expect(page.get_by_text("Drop your spreadsheet here")).to_be_visible()
    waiting[0].continue_()
    expect(page.get_by_role("heading", name="cities.csv")).to_be_visible()


def test_a_file_that_cannot_be_used_says_where_and_another_one_may_follow(
    open_upload: OpenPage, take_screenshot: Shoot
) -> None:
    page = open_upload()
    choose(page, "bad.csv", (HEADER + "r1,beach,Paris\nr2,forest,Rome,x,,,\n").encode())
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Nothing was saved")
    expect(alert).to_contain_text("Row 1 (line 2): this row has 3 cells, the header has 6")
    take_screenshot(page, "uploads-refused")
    choose(page, "good.csv", NEWER.encode())
    expect(page.get_by_role("heading", name="good.csv")).to_be_visible()


def test_a_long_table_shows_how_far_the_check_is(open_upload: OpenPage, database: Database) -> None:
    with database.system_scope() as session:
        session.execute(update(Workspace).values(max_variants_per_batch=30_000))
    page = open_upload()
    rows = "".join(f"r{n},beach,city {n},runners,,\n" for n in range(30_000))
    seen: list[str] = []
    page.expose_function("note", lambda text: seen.append(text))
    page.evaluate(
        "() => { const status = document.querySelector('[data-dropzone-progress] [role=status]');"
        " new MutationObserver(() => note(status.textContent)).observe(status,"
        " { childList: true }); }"
    )
    choose(page, "long.csv", (HEADER + rows).encode())
    expect(page.get_by_role("heading", name="long.csv")).to_be_visible()
    expect(page.get_by_text("30,000 rows").first).to_be_visible()
    assert any("Checked" in text and "%" in text for text in seen), seen


def test_without_scripts_a_button_sends_the_file(open_upload: OpenPage) -> None:
    page = open_upload(java_script_enabled=False)
    choose(page, "cities.csv", MESSY.encode())
    page.get_by_role("button", name="Upload and check").click()
    expect(page.get_by_role("heading", name="cities.csv")).to_be_visible()
