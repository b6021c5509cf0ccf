"""What the browser tests do on many pages: sign in, judge accessibility, wait for videos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from engine.media import encode_video
from tests.paths import AXE
from tests.web import PASSWORD

# Half-way through a change of colours nothing can be judged.
WITHOUT_TRANSITIONS = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("* { transition: none !important; animation: none !important }");
  document.adoptedStyleSheets = [sheet];
}"""


def sign_in(page: Page, email: str) -> None:
    page.goto("/login")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Campaigns")).to_be_visible()


def follow(link: Locator) -> None:
    """Click a link and wait until the scripts of where it leads have run.

    What is typed or clicked before that is not heard by them.
    """
    link.click()
    link.page.wait_for_load_state()


def check_accessibility(page: Page) -> None:
    """No violation that axe-core finds, in either theme."""
    # The page's own policy refuses scripts and styles that are put in by tag.
    page.evaluate(AXE.read_text())
    page.evaluate(WITHOUT_TRANSITIONS)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("axe.run().then(result => result.violations)")
        told = [f"{item['id']}: {[node['target'] for node in item['nodes']]}" for item in found]
        assert told == [], f"{scheme}: {page.url}"
    page.emulate_media(color_scheme="light")


def wait_until_all_play(page: Page) -> None:
    for _ in range(200):
        times = page.evaluate("[...document.querySelectorAll('video')].map(v => v.currentTime)")
        if times and min(times) > 0.1:
            return
        page.wait_for_timeout(50)
    pytest.fail("some video does not play")


def make_clip(folder: Path, ordinal: int) -> bytes:
    """A video of two seconds that moves, other ones for each ordinal."""
    frames = np.full((24, 128, 224, 3), 30 * ordinal, np.uint8)
    frames[:, 20:60, 20:60] = np.arange(24, dtype=np.uint8)[:, None, None, None] * 10
    path = folder / "clip.mp4"
    path.unlink(missing_ok=True)
    encode_video(frames, 12, path)
    return path.read_bytes()
