"""The description of the API is valid, says what the routes do, and is a page of our own."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask
from openapi_spec_validator import OpenAPIV31SpecValidator

from app.api.v1 import DECLARED
from app.config import Config
from app.web.security import content_policy
from tests.api import Api
from tests.web import make_app


@pytest.fixture
def app(config: Config) -> Flask:
    return make_app(config)


@pytest.fixture
def document(app: Flask) -> dict[str, Any]:
    found: dict[str, Any] = Api(app, None).get("/openapi.json").json
    return found


def test_the_document_is_valid_openapi(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_every_route_is_described_once(app: Flask, document: dict[str, Any]) -> None:
    described = {
        (method.upper(), f"/v1{path}")
        for path, operations in document["paths"].items()
        for method in operations
    }
    public = {"/v1/openapi.json", "/v1/docs", "/v1/files/{token}"}
    served = {
        (method, path)
        for rule in app.url_map.iter_rules()
        if rule.rule.startswith("/v1/")
        and (path := re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)) not in public
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert described == served
    assert len(described) == len(DECLARED)


def test_no_answer_lets_a_row_of_the_database_out(document: dict[str, Any]) -> None:
    names = {
        field
        for schema in document["components"]["schemas"].values()
        for field in schema.get("properties", {})
    }
    hidden = {"workspace_id", "storage_key", "secret_sealed", "key_sha256", "lease_token"}
    assert names & hidden == {"workspace_id"}
    account = document["components"]["schemas"]["Account"]["properties"]
    assert "workspace_id" in account


def test_the_page_shows_every_operation_and_loads_nothing_from_elsewhere(
    app: Flask, config: Config
) -> None:
    response = Api(app, None).get("/docs")
    assert response.status_code == 200
    assert all(f'id="{item.operation_id}"' in response.text for item in DECLARED)
    assert 'id="error-idempotency_key_reused"' in response.text
    assert "<script" not in response.text
    assert " style=" not in response.text
    assert re.findall(r'(?:src|href)="(https?:)?//', response.text) == []
    assert response.headers["Content-Security-Policy"] == content_policy(config)
    assert "Set-Cookie" not in response.headers
    ids = re.findall(r' id="([^"]+)"', response.text)
    assert len(ids) == len(set(ids))
