"""The log of requests: what people do and what goes wrong, not what pages fetch by themselves."""

from __future__ import annotations

import logging

import pytest
from flask import Flask

from app.web.assets import asset
from tests.web import Browser

REQUESTS = "app.request"


@pytest.fixture
def visible(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What stands in the log at the level that Adloom starts with."""
    caplog.set_level(logging.INFO, REQUESTS)
    return caplog


def test_files_and_polls_leave_the_log_readable(
    app: Flask, editor: Browser, visible: pytest.LogCaptureFixture
) -> None:
    visible.clear()
    with app.test_request_context():
        stylesheet = asset("css/base.css")
    answer = editor.get(stylesheet)
    assert answer.status_code == 200
    again = editor.get(stylesheet, headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304
    assert editor.get("/", headers={"HX-Request": "true"}).status_code == 200
    assert visible.messages == []
    visible.set_level(logging.DEBUG, REQUESTS)
    editor.get(stylesheet)
    assert [m for m in visible.messages if "css/base.css 200" in m]


def test_pages_changes_and_errors_stay_in_the_log(
    app: Flask, editor: Browser, visible: pytest.LogCaptureFixture
) -> None:
    visible.clear()
    editor.get("/")
    editor.get("/static/css/none.css")
    editor.get("/campaigns/none", headers={"HX-Request": "true"})
    editor.post("/logout", headers={"HX-Request": "true"})
    lines = [message.rpartition(" ")[0].rpartition(" ")[0] for message in visible.messages]
    assert lines[:3] == [
        "GET / 200",
        "GET /static/css/none.css 404",
        "GET /campaigns/none 404",
    ]
    assert lines[3].startswith("POST /logout")
