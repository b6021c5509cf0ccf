"""The API in tests: keys, and a client that sends one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flask import Flask
from werkzeug.test import TestResponse

from app.access import Action, Actor, Role
from app.db import Database
from app.models import Workspace
from app.services import api_keys
from tests.factories import make_user

MEDIA_TYPE = "application/problem+json"


class Api:
    """Requests to /v1 with one key; a key of None sends none."""

    def __init__(self, app: Flask, key: str | None) -> None:
        self._client = app.test_client(use_cookies=False)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def send(self, method: str, path: str, **options: Any) -> TestResponse:
        headers = {**self._headers, **options.pop("headers", {})}
        return self._client.open(f"/v1{path}", method=method, headers=headers, **options)

    def get(self, path: str, **options: Any) -> TestResponse:
        return self.send("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> TestResponse:
        return self.send("POST", path, **({"json": body} if body is not None else {}), **options)

    def made(self, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        """The answer of a POST that must succeed."""
        response = self.post(path, body, **options)
        assert response.status_code in (200, 201, 202), response.text
        answer: dict[str, Any] = response.json
        return answer


def make_key(
    database: Database,
    workspace: Workspace,
    *,
    role: Role = Role.OWNER,
    scopes: Collection[Action] = (),
) -> str:
    """The secret of a new key of the workspace."""
    with database.system_scope() as session:
        user = make_user(session, workspace=workspace)
    owner = Actor(workspace_id=workspace.id, role=Role.OWNER, user_id=user.id)
    with database.workspace_scope(owner) as session:
        _, secret = api_keys.issue_api_key(session, owner, name="test", role=role, scopes=scopes)
    return secret
