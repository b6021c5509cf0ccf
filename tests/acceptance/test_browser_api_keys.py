"""API keys in a browser: made, copied and revoked, and the page of the API, on a phone too."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, expect

from app.access import Role
from app.db import Database
from app.models import Workspace
from tests.acceptance.conftest import DESKTOP, PHONE, Site
from tests.acceptance.pages import follow
from tests.web import PASSWORD, make_member

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_key_is_made_copied_and_revoked(
    open_page: Callable[..., Page],
    site: Site,
    database: Database,
    workspace: Workspace,
    take_screenshot: Callable[[Page, str], None],
    viewport: dict[str, int],
) -> None:
    page = open_page(viewport=viewport)
    page.goto("/login?next=/settings/api-keys")
    page.get_by_label("Email").fill(make_member(database, workspace, Role.OWNER))
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    take_screenshot(page, "api-keys-empty")
    follow(page.get_by_role("link", name="Make your first key"))
    page.get_by_label("What it is for").fill("Nightly product feed")
    take_screenshot(page, "api-keys-form")
    page.get_by_role("button", name="Make the key").click()
    secret = page.get_by_label("API key", exact=True).input_value()
    expect(page.get_by_role("button", name="Copy the key")).to_be_visible()
    take_screenshot(page, "api-keys-secret")
    headers = {"Authorization": f"Bearer {secret}"}
    assert httpx.get(f"{site.url}/v1/account", headers=headers).status_code == 200
    follow(page.get_by_role("link", name="I have copied it"))
    take_screenshot(page, "api-keys-list")
    page.get_by_label("Revoke Nightly product feed").click()
    page.get_by_role("button", name="Revoke for good").click()
    expect(page.get_by_text("Revoked", exact=True)).to_be_visible()
    assert httpx.get(f"{site.url}/v1/account", headers=headers).status_code == 401
    page.goto("/v1/docs")
    expect(page.get_by_role("heading", name="The Adloom API")).to_be_visible()
    take_screenshot(page, "api-docs")
