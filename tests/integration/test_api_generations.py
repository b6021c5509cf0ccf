"""Single generations: one render each, on the same queue as every batch, waited for or not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from flask import Flask
from sqlalchemy import select

from app.config import Config
from app.db import Database
from app.models import Campaign, WebhookEvent, Workspace
from app.services import expanding
from engine.types import GenerationFailure
from tests.api import Api, make_key
from tests.engines import NullEngine
from tests.rendering import Run
from tests.web import make_app

SETTINGS = {"num_frames": 5, "num_inference_steps": 4, "profile": "exact"}
ORDER = {"prompt": "a red sneaker on a beach", "settings": SETTINGS}

pytestmark = pytest.mark.usefixtures("weights")


@pytest.fixture
def app(config: Config) -> Flask:
    return make_app(config)


@pytest.fixture
def api(app: Flask, database: Database, workspace: Workspace) -> Api:
    return Api(app, make_key(database, workspace))


def expand_all(database: Database) -> None:
    with database.system_scope() as session:
        for batch_id in expanding.list_expanding(session):
            while expanding.expand_chunk(session, batch_id):
                pass


@contextmanager
def expanding_meanwhile(database: Database) -> Iterator[None]:
    """The control loop's part, as long as the context is open."""
    is_over = threading.Event()

    def expand() -> None:
        while not is_over.wait(0.2):
            expand_all(database)

    thread = threading.Thread(target=expand)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_generation_is_queued_rendered_and_waited_for(
    api: Api, database: Database, run: Run
) -> None:
    body = {**ORDER, "prompt": "a red sneaker on {{ backdrop }}", "values": {"backdrop": "a beach"}}
    made = api.made("/generations", {**body, "passthrough": {"order": "17"}})
    assert (made["status"], made["artifact"], made["progress"]) == ("queued", None, 0.0)
    run(NullEngine())
    # The control loop's part, a little later.
    threading.Timer(0.5, expand_all, [database]).start()
    done = api.get(f"/generations/{made['id']}?wait=20").json
    assert (done["status"], done["progress"], done["error"]) == ("succeeded", 1.0, None)
    assert done["prompt"] == "a red sneaker on a beach"
    assert 0 < done["cost_micros"] <= done["max_cost_micros"]
    assert done["artifact"]["links"]["file"]
    with database.system_scope() as session:
        events = session.scalars(select(WebhookEvent).order_by(WebhookEvent.id)).all()
    assert "batch.completed" in {event.event_type for event in events}
    assert all(event.data["batch_id"] == made["id"] for event in events)


def test_an_order_may_wait_and_is_not_doubled_when_it_is_sent_again(
    api: Api, database: Database, run: Run
) -> None:
    run(NullEngine())
    key = {"Idempotency-Key": "order-1"}
    with expanding_meanwhile(database):
        first = api.made("/generations?wait=20", ORDER, headers=key)
        again = api.made("/generations?wait=20", ORDER, headers=key)
    assert (first["status"], first["id"]) == ("succeeded", again["id"])
    assert len(api.get("/generations").json["data"]) == 1


def test_a_wait_ends_without_the_result(api: Api) -> None:
    started = time.monotonic()
    made = api.made("/generations?wait=1", ORDER)
    assert made["status"] == "queued"
    assert 1.0 <= time.monotonic() - started < 10.0
    refused = api.post("/generations?wait=31", ORDER)
    assert (refused.status_code, refused.json["field"]) == (422, "wait")


def test_a_generation_that_waits_is_cancelled(api: Api, database: Database) -> None:
    made = api.made("/generations", ORDER)
    cancelled = api.made(f"/generations/{made['id']}/cancel")
    assert cancelled["status"] == "cancelled"
    assert api.post(f"/generations/{made['id']}/cancel").status_code == 409


def test_a_render_that_fails_says_why(api: Api, database: Database, run: Run) -> None:
    failure = GenerationFailure(
        request_id="", code="out_of_memory", message="Too large.", is_retryable=False
    )
    made = api.made("/generations", ORDER)
    expand_all(database)
    run(NullEngine(failures={"sneaker": failure}))
    failed = api.get(f"/generations/{made['id']}?wait=20").json
    assert failed["status"] == "failed"
    assert failed["error"] == {"code": "out_of_memory", "message": "Too large."}


def test_generations_stay_out_of_campaigns_and_batches(api: Api, database: Database) -> None:
    for number in range(3):
        api.made("/generations", {**ORDER, "seed": number})
    assert api.get("/campaigns").json["data"] == []
    assert api.get("/batches").json["data"] == []
    page = api.get("/generations?limit=2").json
    assert [item["seed"] for item in page["data"]] == [2, 1]
    rest = api.get(f"/generations?limit=2&cursor={page['next_cursor']}").json
    assert [item["seed"] for item in rest["data"]] == [0]
    with database.system_scope() as session:
        assert len(session.scalars(select(Campaign)).all()) == 1


def test_a_batch_is_no_generation(api: Api) -> None:
    campaign = api.made(
        "/campaigns", {"name": "Spring", "prompt": "a sneaker", "settings": SETTINGS}
    )
    batch = api.made("/batches", {"campaign_id": campaign["id"]})
    assert api.get(f"/generations/{batch['id']}").status_code == 404
