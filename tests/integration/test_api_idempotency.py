"""A request that is sent again under its key has no second effect, whatever came between."""

from __future__ import annotations

import io
import threading
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select, text

from app.config import Config
from app.db import Database
from app.models import Base, Campaign, IdempotencyKey, Upload, WebhookEndpoint, Workspace
from app.services import campaigns, idempotency
from tests.api import Api, make_key
from tests.factories import make_workspace
from tests.web import make_app

CAMPAIGN = {"name": "Spring", "prompt": "a red sneaker"}
KEY = {"Idempotency-Key": "order-1"}


@pytest.fixture
def app(config: Config) -> Flask:
    return make_app(config)


@pytest.fixture
def api(app: Flask, database: Database, workspace: Workspace) -> Api:
    return Api(app, make_key(database, workspace))


def count(database: Database, model: type[Base]) -> int:
    with database.system_scope() as session:
        return session.scalar(select(func.count()).select_from(model)) or 0


def test_the_same_request_again_gets_the_same_answer_and_no_second_effect(
    api: Api, database: Database
) -> None:
    first = api.post("/campaigns", CAMPAIGN, headers=KEY)
    again = api.post("/campaigns", CAMPAIGN, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.data == again.data
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert count(database, Campaign) == 1
    assert api.post("/campaigns", CAMPAIGN).json["id"] != first.json["id"]


def test_another_request_under_a_used_key_is_refused(api: Api, database: Database) -> None:
    api.made("/campaigns", CAMPAIGN, headers=KEY)
    for path, body in (
        ("/campaigns", {**CAMPAIGN, "name": "Summer"}),
        ("/generations", {"prompt": "a red sneaker"}),
    ):
        refused = api.post(path, body, headers=KEY)
        assert (refused.status_code, refused.json["code"]) == (422, "idempotency_key_reused")
    assert count(database, Campaign) == 1


def test_a_key_means_nothing_in_another_workspace(app: Flask, api: Api, database: Database) -> None:
    with database.system_scope() as session:
        other = make_workspace(session)
    ours = api.made("/campaigns", CAMPAIGN, headers=KEY)
    theirs = Api(app, make_key(database, other)).made("/campaigns", CAMPAIGN, headers=KEY)
    assert ours["id"] != theirs["id"]


def test_a_crash_before_the_commit_leaves_neither_effect_nor_answer(
    app: Flask, api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.config["PROPAGATE_EXCEPTIONS"] = False
    keep = idempotency.keep_answer

    def keep_and_die(*args: Any, **options: Any) -> None:
        keep(*args, **options)
        raise RuntimeError("the machine is gone")

    with monkeypatch.context() as patch:
        patch.setattr(idempotency, "keep_answer", keep_and_die)
        assert api.post("/campaigns", CAMPAIGN, headers=KEY).status_code == 500
    assert (count(database, Campaign), count(database, IdempotencyKey)) == (0, 0)
    assert api.post("/campaigns", CAMPAIGN, headers=KEY).status_code == 201
    assert (count(database, Campaign), count(database, IdempotencyKey)) == (1, 1)


def test_a_crash_after_the_commit_finds_the_answer_again(
    app: Flask, api: Api, database: Database, workspace: Workspace
) -> None:
    """As when the connection breaks: the effect is there, and its answer never arrived."""
    lost = api.post("/campaigns", CAMPAIGN, headers=KEY)
    elsewhere = Api(make_app(app.extensions["adloom"].config), make_key(database, workspace))
    assert elsewhere.post("/campaigns", CAMPAIGN, headers=KEY).data == lost.data
    assert count(database, Campaign) == 1


def test_while_a_request_is_worked_on_the_same_key_is_refused(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_inside, may_go_on = threading.Event(), threading.Event()
    create = campaigns.create_campaign

    def create_slowly(*args: Any, **options: Any) -> Campaign:
        is_inside.set()
        assert may_go_on.wait(20)
        return create(*args, **options)

    monkeypatch.setattr(campaigns, "create_campaign", create_slowly)
    answers: list[int] = []
    thread = threading.Thread(
        target=lambda: answers.append(api.post("/campaigns", CAMPAIGN, headers=KEY).status_code)
    )
    thread.start()
    assert is_inside.wait(20)
    refused = api.post("/campaigns", CAMPAIGN, headers=KEY)
    may_go_on.set()
    thread.join()
    assert (refused.status_code, refused.json["code"]) == (409, "idempotency_key_in_use")
    assert answers == [201]
    assert api.post("/campaigns", CAMPAIGN, headers=KEY).status_code == 201
    assert count(database, Campaign) == 1


def test_an_error_is_not_kept_so_the_mended_request_may_come_under_its_key(api: Api) -> None:
    assert api.post("/campaigns", {**CAMPAIGN, "prompt": "{{"}, headers=KEY).status_code == 400
    assert api.post("/campaigns", CAMPAIGN, headers=KEY).status_code == 201


def test_after_a_day_a_key_is_free_again(api: Api, database: Database) -> None:
    first = api.made("/campaigns", CAMPAIGN, headers=KEY)
    with database.system_scope() as session:
        lifetime = session.scalar(
            text("SELECT max(expires_at - created_at) = interval '24 hours' FROM idempotency_keys")
        )
        session.execute(text("UPDATE idempotency_keys SET expires_at = now()"))
    assert lifetime is True
    assert api.made("/campaigns", CAMPAIGN, headers=KEY)["id"] != first["id"]
    assert count(database, IdempotencyKey) == 1


def test_the_same_file_is_the_same_request(api: Api, database: Database) -> None:
    body = {**CAMPAIGN, "prompt": "a sneaker in {{ city }}"}
    path = f"/campaigns/{api.made('/campaigns', body)['id']}/uploads"

    def send(content: bytes) -> int:
        file = (io.BytesIO(content), "rows.csv")
        return api.post(path, data={"file": file}, headers=KEY).status_code

    assert [send(b"city\nparis\n"), send(b"city\nparis\n"), send(b"city\nrome\n")] == [
        201,
        201,
        422,
    ]
    assert count(database, Upload) == 1


def test_a_kept_secret_cannot_be_read_in_the_database(api: Api, database: Database) -> None:
    body = {"url": "https://hooks.example.com/adloom"}
    first = api.made("/webhook-endpoints", body, headers=KEY)
    again = api.made("/webhook-endpoints", body, headers=KEY)
    assert first == again
    with database.system_scope() as session:
        kept = session.scalars(select(IdempotencyKey.body_sealed)).one()
    assert first["secret"].encode() not in kept
    assert count(database, WebhookEndpoint) == 1


def test_a_changed_secret_key_refuses_the_request_instead_of_repeating_or_breaking_it(
    app: Flask, api: Api, config: Config, database: Database, workspace: Workspace
) -> None:
    first = api.made("/campaigns", CAMPAIGN, headers=KEY)
    secret = make_key(database, workspace)
    changed = Api(make_app(replace(config, secret_key="another-" + "y" * 32)), secret)
    refused = changed.post("/campaigns", CAMPAIGN, headers=KEY)
    assert (refused.status_code, refused.json["code"]) == (409, "idempotency_answer_unreadable")
    assert "ADLOOM_SECRET_KEY has changed" in refused.json["detail"]
    assert count(database, Campaign) == 1
    # The two ways out that the answer names, and the operator's: the old setting.
    assert [item["id"] for item in changed.get("/campaigns").json["data"]] == [first["id"]]
    assert Api(app, secret).made("/campaigns", CAMPAIGN, headers=KEY) == first
    changed.made("/campaigns", CAMPAIGN, headers={"Idempotency-Key": "order-2"})
    assert count(database, Campaign) == 2


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_that_cannot_be_kept_is_refused(api: Api, key: str) -> None:
    response = api.post("/campaigns", CAMPAIGN, headers={"Idempotency-Key": key})
    assert (response.status_code, response.json["field"]) == (400, "Idempotency-Key")
