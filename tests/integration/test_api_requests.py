"""Every request to the API: its key, its limits, its errors, its cursors, its ETag."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flask import Flask

from app.access import Action, Role
from app.config import Config
from app.db import Database
from app.models import Workspace
from app.services import rate_limits
from tests.api import MEDIA_TYPE, Api, make_key
from tests.factories import make_campaign, make_workspace
from tests.web import Browser, make_app, make_member


@pytest.fixture
def app(config: Config) -> Flask:
    return make_app(config)


@pytest.fixture
def api(app: Flask, database: Database, workspace: Workspace) -> Api:
    return Api(app, make_key(database, workspace))


def test_without_a_key_nothing_is_answered_and_no_cookie_helps(
    app: Flask, database: Database, workspace: Workspace
) -> None:
    browser = Browser(app)
    browser.sign_in(make_member(database, workspace, Role.OWNER))
    for response in (Api(app, None).get("/campaigns"), browser.get("/v1/campaigns")):
        assert response.status_code == 401
        assert response.mimetype == MEDIA_TYPE
        assert response.json["code"] == "unauthenticated"
        assert response.json["request_id"] == response.headers["X-Request-ID"]
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
    assert Api(app, "adl_wrong").get("/campaigns").status_code == 401


def test_an_answer_to_a_key_sets_no_cookie(api: Api) -> None:
    response = api.get("/account")
    assert response.status_code == 200
    assert "Set-Cookie" not in response.headers
    assert response.json["workspace_name"] == "Northwind"


def test_a_key_does_what_its_role_and_its_scopes_allow(
    app: Flask, database: Database, workspace: Workspace
) -> None:
    campaign = {"name": "Spring", "prompt": "a red sneaker"}
    viewer = Api(app, make_key(database, workspace, role=Role.VIEWER))
    scoped = Api(app, make_key(database, workspace, scopes=[Action.VIEW]))
    for api in (viewer, scoped):
        assert api.get("/campaigns").status_code == 200
        refused = api.post("/campaigns", campaign)
        assert (refused.status_code, refused.json["code"]) == (403, "forbidden")


def test_a_request_that_does_not_fit_is_told_every_fault(api: Api) -> None:
    response = api.post("/campaigns", {"name": "", "settings": {"task": "film"}, "colour": 1})
    assert response.status_code == 422
    assert response.json["code"] == "validation_failed"
    fields = {error["field"] for error in response.json["errors"]}
    assert fields == {"name", "prompt", "settings.task", "colour"}


def test_a_prompt_with_faults_is_told_where_they_are(api: Api) -> None:
    response = api.post("/campaigns", {"name": "Spring", "prompt": "a {{ b"})
    assert (response.status_code, response.json["code"]) == (400, "invalid_prompt")
    assert response.json["errors"][0]["line"] == 1


def test_unknown_paths_and_methods_are_problems_too(api: Api) -> None:
    missing = api.get("/nothing")
    assert (missing.status_code, missing.json["code"]) == (404, "not_found")
    wrong = api.send("DELETE", "/campaigns")
    assert (wrong.status_code, wrong.json["code"]) == (405, "method_not_allowed")
    assert "POST" in wrong.headers["Allow"]
    text = api.send("POST", "/campaigns", data="name=x", content_type="text/plain")
    assert (text.status_code, text.json["code"]) == (415, "unsupported_media_type")


def test_an_unexpected_error_hides_its_cause_and_names_the_request(
    app: Flask, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the password is tulip")

    monkeypatch.setattr("app.services.campaign_list.list_newest", fail)
    app.config["PROPAGATE_EXCEPTIONS"] = False
    response = api.get("/campaigns")
    assert (response.status_code, response.json["code"]) == (500, "internal")
    assert "tulip" not in response.text


def test_a_key_is_slowed_down_beyond_its_limit(
    config: Config, redis_url: str, database: Database, workspace: Workspace
) -> None:
    app = make_app(replace(config, redis_url=redis_url, api_requests_per_minute=3))
    api, other = (Api(app, make_key(database, workspace)) for _ in range(2))
    clock = app.extensions["adloom"].rate_limiter
    clock._clock = lambda: 1_000_000_020.0
    left = [api.get("/account").headers["RateLimit"] for _ in range(3)]
    assert left == [f'"default";r={rest};t=60' for rest in (2, 1, 0)]
    refused = api.get("/account")
    assert (refused.status_code, refused.json["code"]) == (429, "rate_limited")
    assert refused.headers["Retry-After"] == "60"
    assert refused.headers["RateLimit-Policy"] == '"default";q=3;w=60'
    assert other.get("/account").status_code == 200
    clock._clock = lambda: 1_000_000_020.0 + rate_limits.WINDOW_S
    assert api.get("/account").status_code == 200


def test_without_redis_requests_are_let_in(api: Api) -> None:
    assert [api.get("/account").status_code for _ in range(3)] == [200] * 3


def test_pages_follow_each_other_and_a_changed_cursor_is_refused(
    api: Api, database: Database, workspace: Workspace
) -> None:
    with database.system_scope() as session:
        for number in range(5):
            make_campaign(session, workspace_id=workspace.id, name=f"Campaign {number}")
    seen: list[str] = []
    path = "/campaigns?limit=2"
    for _ in range(3):
        page = api.get(path).json
        seen += [item["name"] for item in page["data"]]
        path = f"/campaigns?limit=2&cursor={page['next_cursor']}"
    assert seen == [f"Campaign {number}" for number in (4, 3, 2, 1, 0)]
    assert page["next_cursor"] is None
    cursor = api.get("/campaigns?limit=2").json["next_cursor"]
    for changed in (f"/campaigns?cursor=x{cursor}", f"/batches?cursor={cursor}"):
        refused = api.get(changed)
        assert (refused.status_code, refused.json["code"]) == (400, "invalid_cursor")


def test_a_cursor_of_another_workspace_is_refused(
    app: Flask, api: Api, database: Database, workspace: Workspace
) -> None:
    with database.system_scope() as session:
        other = make_workspace(session)
        for _ in range(3):
            make_campaign(session, workspace_id=other.id)
    cursor = Api(app, make_key(database, other)).get("/campaigns?limit=1").json["next_cursor"]
    assert api.get(f"/campaigns?limit=1&cursor={cursor}").status_code == 400


def test_what_has_not_changed_is_not_sent_again(api: Api) -> None:
    campaign = api.made("/campaigns", {"name": "Spring", "prompt": "a red sneaker"})
    path = f"/campaigns/{campaign['id']}"
    etag = api.get(path).headers["ETag"]
    again = api.get(path, headers={"If-None-Match": etag})
    assert (again.status_code, again.data) == (304, b"")
    api.send("PATCH", path, json={"name": "Summer"})
    changed = api.get(path, headers={"If-None-Match": etag})
    assert (changed.status_code, changed.json["name"]) == (200, "Summer")


@pytest.mark.parametrize("path", ["/campaigns", "/batches", "/generations", "/webhook-endpoints"])
def test_lists_are_empty_at_first(api: Api, path: str) -> None:
    assert api.get(path).json["data"] == []
