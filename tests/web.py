"""The dashboard in tests: an app on the test's database, and clients that are signed in."""

from __future__ import annotations

import re
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from app.access import Role
from app.config import Config
from app.db import Database
from app.factory import create_app
from app.models import Workspace
from app.services.passwords import hash_password
from tests.factories import make_user

PASSWORD = "correct horse battery"
TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')


class Browser:
    """A client that sends the CSRF token of the page it saw last, as a browser would."""

    def __init__(self, app: Flask) -> None:
        self.client: FlaskClient = app.test_client()
        self.token = ""

    def get(self, path: str, **options: Any) -> TestResponse:
        return self._seen(self.client.get(path, **options))

    def post(self, path: str, data: dict[str, Any] | None = None, **options: Any) -> TestResponse:
        form = {"csrf_token": self.token, **(data or {})}
        return self._seen(self.client.post(path, data=form, **options))

    def sign_in(self, email: str, password: str = PASSWORD) -> TestResponse:
        self.get("/login")
        return self.post("/login", {"email": email, "password": password})

    def _seen(self, response: TestResponse) -> TestResponse:
        if response.mimetype == "text/html" and (found := TOKEN.search(response.text)):
            self.token = found[1]
        return response


def make_app(config: Config) -> Flask:
    """The dashboard on the test's database, as gunicorn would start it."""
    app = create_app(config)
    app.config["TESTING"] = True
    return app


def make_member(database: Database, workspace: Workspace, role: Role) -> str:
    """Somebody in the workspace who can sign in with PASSWORD; returns the address."""
    with database.system_scope() as session:
        user = make_user(
            session, workspace=workspace, role=role, password_hash=hash_password(PASSWORD)
        )
        return user.email
