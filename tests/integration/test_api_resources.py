"""A whole campaign over the API: prompt, rows, quote, batch, variants, artifacts, reviews."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from flask import Flask

from app.config import Config
from app.db import Database
from app.models import Workspace
from app.services import expanding
from tests.api import Api, make_key
from tests.engines import NullEngine
from tests.rendering import Run, wait_for_states
from tests.web import make_app

PROMPT = "a red sneaker on {{ backdrop }}, in {{ geography }}"
SETTINGS = {"num_frames": 5, "num_inference_steps": 4, "profile": "exact"}
VALUES = [
    {"name": "backdrop", "values": ["a beach", "a meadow"]},
    {"name": "geography", "values": ["paris", "tokyo"]},
]

pytestmark = pytest.mark.usefixtures("weights")


@pytest.fixture
def app(config: Config) -> Flask:
    return make_app(config)


@pytest.fixture
def api(app: Flask, database: Database, workspace: Workspace) -> Api:
    return Api(app, make_key(database, workspace))


@pytest.fixture
def campaign_id(api: Api) -> str:
    body = {"name": "Spring", "prompt": PROMPT, "settings": SETTINGS, "parameters": VALUES}
    campaign: str = api.made("/campaigns", body)["id"]
    return campaign


def expand(database: Database, batch_id: str) -> None:
    with database.system_scope() as session:
        while expanding.expand_chunk(session, UUID(batch_id)):
            pass


def test_a_campaign_keeps_its_prompt_in_versions(api: Api, campaign_id: str) -> None:
    path = f"/campaigns/{campaign_id}"
    assert [item["kind"] for item in api.get(path).json["parameters"]] == ["backdrop", "geography"]
    made = api.made(f"{path}/prompt-templates", {"text": "a sneaker on {{ backdrop }}"})
    assert made["version"] == 2
    versions = api.get(f"{path}/prompt-templates?limit=1").json
    assert [item["version"] for item in versions["data"]] == [2]
    rest = api.get(f"{path}/prompt-templates?limit=1&cursor={versions['next_cursor']}").json
    assert [item["version"] for item in rest["data"]] == [1]
    values = {"parameters": [{"name": "backdrop", "kind": "choice", "values": ["a roof"]}]}
    changed = api.send("PUT", f"{path}/parameters", json=values).json
    expected = {"name": "backdrop", "kind": "choice", "values": ["a roof"], "places": {}}
    assert changed["parameters"] == [expected]
    assert api.send("DELETE", path).status_code == 204
    assert api.get("/campaigns").json["data"] == []


def test_settings_that_are_left_out_stay(api: Api, campaign_id: str) -> None:
    path = f"/campaigns/{campaign_id}"
    changed = api.send("PATCH", path, json={"settings": {"size": "9:16"}}).json["settings"]
    assert (changed["width"], changed["height"], changed["num_frames"]) == (128, 224, 5)
    refused = api.send("PATCH", path, json={"settings": {"num_frames": 6}})
    assert (refused.status_code, refused.json["field"]) == (400, "num_frames")


def test_a_quote_prices_a_batch_that_can_be_launched(api: Api, campaign_id: str) -> None:
    quote = api.made("/quotes", {"campaign_id": campaign_id, "seed": 7})
    assert quote["variant_count"] == 4
    assert 0 < quote["cost_micros"] <= quote["full_cost_micros"]
    assert {"exact", "faithful"} <= set(quote["profiles"])
    assert api.get(f"/quotes/{quote['id']}").json == quote
    batch = api.get(f"/batches/{quote['batch_id']}").json
    assert (batch["state"], batch["quote"], batch["seed"]) == ("previewing", quote, 7)
    launched = api.made(f"/batches/{batch['id']}/launch")
    assert launched["state"] == "expanding"
    twice = api.post(f"/batches/{batch['id']}/launch")
    assert (twice.status_code, twice.json["code"]) == (409, "conflict")


def test_rows_become_variants_with_artifacts_that_are_reviewed(
    api: Api, app: Flask, database: Database, campaign_id: str, run: Run
) -> None:
    rows = b"row_id,Geography,backdrop,market\nr1,paris,a beach,FR\nr2,tokyo,a meadow,JP\n"
    path = f"/campaigns/{campaign_id}/uploads"
    upload = api.made(path, data={"file": (io.BytesIO(rows), "rows.csv")})
    assert (upload["row_count"], upload["is_open"]) == (2, False)
    assert api.get(path).json["data"] == [api.get(f"/uploads/{upload['id']}").json]
    body = {"campaign_id": campaign_id, "upload_id": upload["id"], "launch": True}
    batch = api.made("/batches", body)
    expand(database, batch["id"])
    run(NullEngine())
    wait_for_states(database, {"succeeded": 2})

    first = api.get(f"/batches/{batch['id']}/variants?limit=1").json
    variant = first["data"][0]
    assert (variant["row_id"], variant["passthrough"]) == ("r1", {"market": "FR"})
    assert variant["values"] == {"backdrop": "a beach", "geography": "paris"}
    cursor = first["next_cursor"]
    second = api.get(f"/batches/{batch['id']}/variants?limit=1&cursor={cursor}").json
    assert ([item["row_id"] for item in second["data"]], second["next_cursor"]) == (["r2"], None)

    artifact = api.get(f"/artifacts/{variant['artifact']['id']}").json
    link = artifact["links"]["file"].removeprefix(app.extensions["adloom"].config.base_url)
    file = app.test_client().get(link, headers={"Range": "bytes=4-7"})
    assert (file.status_code, file.data) == (206, b"ftyp")
    forged = app.test_client().get(link[:-1] + ("A" if link[-1] != "A" else "B"))
    assert (forged.status_code, forged.json["code"]) == (404, "link_expired")

    review = {"state": "rejected", "reason": "wrong shoe"}
    reviewed = api.send("PUT", f"/variants/{variant['id']}/review", json=review).json
    assert reviewed["review"]["reason"] == "wrong shoe"
    ids = [variant["id"], second["data"][0]["id"]]
    assert api.made("/reviews", {"variant_ids": ids, "state": "approved"}) == {"reviewed": 2}
    approved = api.get(f"/batches/{batch['id']}/variants?review=approved").json["data"]
    assert [item["id"] for item in approved] == ids
    shown = api.get(f"/batches/{batch['id']}").json
    assert (shown["state"], shown["progress"]["done"]) == ("completed", 2)
    usage = api.get("/usage").json
    assert usage["renders"] == 2
    assert usage["cost_micros"] == shown["progress"]["cost_micros"] > 0


def test_a_link_ends_after_some_minutes(
    api: Api, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.api.files import SLOT_S, Part, link_to

    with app.test_request_context():
        now = 1_000 * SLOT_S + 1
        same = {link_to(UUID(int=1), Part.FILE, clock=lambda at=at: at) for at in (now, now + 60)}
        later = link_to(UUID(int=1), Part.FILE, clock=lambda: now + SLOT_S)
    assert len(same) == 1
    assert later not in same
    old = same.pop().removeprefix(app.extensions["adloom"].config.base_url)
    assert app.test_client().get(old).json["code"] == "link_expired"


def test_a_batch_is_paused_resumed_and_cancelled(api: Api, campaign_id: str) -> None:
    batch = api.made("/batches", {"campaign_id": campaign_id, "launch": True})
    path = f"/batches/{batch['id']}"
    assert api.made(f"{path}/pause")["state"] == "paused"
    assert api.made(f"{path}/resume")["state"] == "expanding"
    assert api.made(f"{path}/cancel")["state"] == "cancelled"
    assert api.post(f"{path}/retry").status_code == 409
    assert [item["id"] for item in api.get("/batches").json["data"]] == [batch["id"]]


def test_previews_are_started_before_the_launch(api: Api, campaign_id: str) -> None:
    quote = api.made("/quotes", {"campaign_id": campaign_id})
    path = f"/batches/{quote['batch_id']}/previews"
    assert api.made(path, {"ordinals": [0, 3]})["started"] == 2
    assert api.post(path, {"ordinals": [4]}).status_code == 400


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"mode": "sampled"}, "body"),
        ({"parameters": [{"name": "geography", "values": [" "]}]}, "geography"),
        ({"takes": 1_000}, "takes"),
        ({"settings": {"size": "7:5"}}, "size"),
    ],
)
def test_a_batch_that_cannot_be_is_refused_by_its_field(
    api: Api, campaign_id: str, more: dict[str, object], field: str
) -> None:
    response = api.post("/batches", {"campaign_id": campaign_id, **more})
    assert response.status_code in (400, 422), response.text
    assert response.json["field"] == field


def test_models_say_what_they_can_do_and_cost(api: Api) -> None:
    [model] = [m for m in api.get("/models").json["data"] if m["model_id"] == "adloom-tiny"]
    assert "t2v" in model["tasks"]
    assert all(price["cost_micros"] > 0 for price in model["prices"])


def test_webhook_endpoints_are_made_changed_and_deleted(api: Api) -> None:
    made = api.made("/webhook-endpoints", {"url": "https://hooks.example.com/a"})
    assert made["secret"].startswith("whsec_")
    path = f"/webhook-endpoints/{made['endpoint']['id']}"
    assert "whsec_" not in api.get(path).text
    off = api.send("PATCH", path, json={"is_enabled": False, "description": "Posts"}).json
    assert (off["is_enabled"], off["description"], off["url"]) == (
        False,
        "Posts",
        "https://hooks.example.com/a",
    )
    assert api.post(f"{path}/ping").status_code == 409
    assert api.send("PATCH", path, json={"is_enabled": True}).json["is_enabled"]
    assert api.made(f"{path}/ping")["event_id"]
    assert api.made(f"{path}/rotate-secret", {})["secret"] != made["secret"]
    assert api.post(f"{path}/rotate-secret", {}).status_code == 409
    assert api.made(f"{path}/replay", {}) == {"replayed": 0}
    inside = api.post("/webhook-endpoints", {"url": "http://10.0.0.1/"})
    assert inside.status_code == 400
    assert api.send("DELETE", path).status_code == 204
    assert api.get("/webhook-endpoints").json["data"] == []
