"""A real browser against the real app, workers and engine, with the built-in model."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page, expect, sync_playwright
from werkzeug.serving import make_server

from app.access import Role
from app.config import Config
from app.db import Database
from app.models import Workspace
from app.paths import ROOT
from app.queues import Queue
from app.storage import Storage
from tests.acceptance.pages import make_clip
from tests.integration.gallery_tools import launch, render
from tests.web import Browser as Client
from tests.web import make_app, make_member
from workers.runtime import Runtime

SCREENSHOTS = ROOT / "build" / "screenshots"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Several processes may share the machine's cores with the browser.
TIMEOUT_MS = 60_000
expect.set_options(timeout=TIMEOUT_MS)
ARGUMENTS = ["--no-sandbox", "--disable-quic", "--disable-background-networking"]
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 375, "height": 800}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Chromium from ADLOOM_CHROMIUM or the PATH; without one the test is skipped, or fails
    where ADLOOM_REQUIRE_BROWSER=1."""
    path = os.environ.get("ADLOOM_CHROMIUM") or next(
        filter(None, map(shutil.which, CHROMIUM_NAMES)), None
    )
    if path is None:
        message = "no Chromium: install one, or set ADLOOM_CHROMIUM to its executable"
        if os.environ.get("ADLOOM_REQUIRE_BROWSER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


def is_fault(message: str) -> bool:
    """Whether a line in the browser's console tells of a fault: a request that gave way to a newer
    one, or to the next page, is logged by htmx as well."""
    return not message.startswith(("htmx:afterRequest", "htmx:sendAbort"))


@dataclass
class Site:
    """The dashboard behind an address."""

    url: str


@pytest.fixture
def app(config: Config) -> Flask:
    return make_app(config)


@pytest.fixture
def web_site(app: Flask) -> Iterator[Site]:
    """The web server alone: nothing is rendered by itself."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Site(url=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()


@pytest.fixture
def email(database: Database, workspace: Workspace) -> str:
    return make_member(database, workspace, Role.OWNER)


@pytest.fixture
def batch_id(app: Flask, database: Database, storage: Storage, tmp_path: Path, email: str) -> UUID:
    """Six variants of two seconds, of which the last failed; rendered by hand, without engine."""
    browser = Client(app)
    browser.sign_in(email)
    browser.get("/")
    batch_id = launch(browser)
    render(
        database,
        storage,
        tmp_path,
        batch_id,
        is_good=lambda ordinal: ordinal < 5,
        make_video=lambda ordinal: make_clip(tmp_path, ordinal),
    )
    return batch_id


@pytest.fixture
def site(config: Config, redis_url: str) -> Iterator[Site]:
    """Web server, control and render loops on the test's own database."""
    config = replace(config, redis_url=redis_url, workers=replace(config.workers, poll_s=0.2))
    runtime = Runtime(config)
    server = make_server("127.0.0.1", 0, make_app(config), threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    runtime.start([Queue.CONTROL, Queue.RENDER])
    yield Site(url=f"http://127.0.0.1:{server.server_port}")
    runtime.stop()
    runtime.join()
    server.shutdown()
    thread.join()


@pytest.fixture
def open_page(chromium: Browser, site: Site) -> Iterator[Callable[..., Page]]:
    """Opens a page of the site in a fresh profile; fails on errors in the browser's console."""
    contexts = []
    errors: list[str] = []

    def open_page(**options: object) -> Page:
        context = chromium.new_context(
            **{"base_url": site.url, "viewport": DESKTOP, "color_scheme": "light"} | options
        )
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: (
                errors.append(f"{page.url}: {message.text}")
                if message.type == "error" and is_fault(message.text)
                else None
            ),
        )
        return page

    yield open_page
    for context in contexts:
        context.close()
    # Answers of 4xx are asked for by some tests; everything else in the console is a fault.
    assert [error for error in errors if "Failed to load resource" not in error] == []


@pytest.fixture
def take_screenshot() -> Callable[[Page, str], None]:
    """Saves the whole page below build/screenshots; with ADLOOM_SCREENSHOTS=all also in dark."""
    schemes = ["light", "dark"] if os.environ.get("ADLOOM_SCREENSHOTS") == "all" else ["light"]

    def take(page: Page, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        width = page.viewport_size["width"] if page.viewport_size else 0
        page.evaluate("scrollTo(0, 0)")
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            path = SCREENSHOTS / f"{name}-{width}-{scheme}.png"
            # Hiding the caret leaves style attributes, which htmx copies and our policy bans.
            page.screenshot(path=path, full_page=True, caret="initial")
        page.emulate_media(color_scheme="light")
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, f"{name} is {overflow} px wider than its window"

    return take
