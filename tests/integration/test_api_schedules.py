"""Schedules over the API: made, shown with their next times, changed, paused, run, deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask

from app.access import Role
from app.db import Database
from app.models import Batch, BatchState, Workspace
from tests.api import Api, make_key
from tests.integration.batch_tools import state_of

pytestmark = pytest.mark.usefixtures("weights")
NIGHTLY: dict[str, Any] = {
    "timing": {"kind": "weekly", "weekdays": ["fri", "mon"], "at": "22:00"},
    "time_zone": "America/New_York",
}


@pytest.fixture
def api(app: Flask, database: Database, workspace: Workspace) -> Api:
    return Api(app, make_key(database, workspace))


@pytest.fixture
def batch_id(create: Callable[..., Batch]) -> str:
    return str(create().id)


def make(api: Api, batch_id: str, **changes: Any) -> dict[str, Any]:
    return api.made("/schedules", {"batch_id": batch_id, **NIGHTLY, **changes})


def test_a_schedule_is_shown_with_its_next_five_times_and_their_offsets(
    api: Api, batch_id: str
) -> None:
    made = make(api, batch_id, name="Nightly", deadline="06:00")
    assert made["name"] == "Nightly"
    assert made["timing"] == {"kind": "weekly", "weekdays": ["mon", "fri"], "at": "22:00"}
    assert (made["deadline"], made["has_fresh_seeds"]) == ("06:00", True)
    assert len(made["next_fires"]) == 5
    for item in made["next_fires"]:
        at = datetime.fromisoformat(item["at"])
        assert at.isoformat()[-6:] in ("-05:00", "-04:00")
        assert at.replace(tzinfo=None) == datetime.fromisoformat(item["local"])
        assert (at.hour, at.strftime("%a") in ("Mon", "Fri")) == (22, True)
    assert datetime.fromisoformat(made["next_fire_at"]) == datetime.fromisoformat(
        made["next_fires"][0]["at"]
    )
    assert api.get(f"/schedules/{made['id']}").json == made


def test_a_schedule_that_is_asked_for_twice_under_one_key_is_made_once(
    api: Api, batch_id: str
) -> None:
    headers = {"Idempotency-Key": "once"}
    body = {"batch_id": batch_id, **NIGHTLY}
    first, second = (api.post("/schedules", body, headers=headers).json for _ in range(2))
    assert first == second
    assert len(api.get("/schedules").json["data"]) == 1


def test_lists_go_page_by_page_and_by_batch(
    api: Api, batch_id: str, create: Callable[..., Batch]
) -> None:
    made = [make(api, batch_id)["id"] for _ in range(3)]
    other = make(api, str(create().id))["id"]
    first = api.get(f"/schedules?limit=2&batch_id={batch_id}").json
    query = f"limit=2&batch_id={batch_id}&cursor={first['next_cursor']}"
    rest = api.get(f"/schedules?{query}").json
    assert [item["id"] for item in (*first["data"], *rest["data"])] == made[::-1]
    assert rest["next_cursor"] is None
    campaign = api.get(f"/schedules/{other}").json["campaign_id"]
    assert len(api.get(f"/schedules?campaign_id={campaign}").json["data"]) == 4
    assert api.get(f"/schedules?campaign_id={uuid4()}").json["data"] == []


def test_a_change_leaves_what_it_does_not_name_and_null_takes_away(api: Api, batch_id: str) -> None:
    made = make(api, batch_id, deadline="06:00", budget_micros=5_000_000)
    path = f"/schedules/{made['id']}"
    changed = api.send(
        "PATCH",
        path,
        json={"time_zone": "Asia/Tokyo", "deadline": None, "missed_policy": "skip"},
    ).json
    assert (changed["deadline"], changed["budget_micros"]) == (None, 5_000_000)
    assert (changed["missed_policy"], changed["timing"]) == ("skip", made["timing"])
    assert all(item["at"].endswith("+09:00") for item in changed["next_fires"])
    cron = {"timing": {"kind": "cron", "expression": "0  3 * * 1-5"}, "name": "Early"}
    changed = api.send("PATCH", path, json=cron).json
    assert (changed["name"], changed["timing"]["expression"]) == ("Early", "0 3 * * 1-5")


def test_pause_and_resume(api: Api, batch_id: str) -> None:
    path = f"/schedules/{make(api, batch_id)['id']}"
    paused = api.made(f"{path}/pause", {"note": "sold  out"})
    assert (paused["pause_note"], paused["next_fire_at"], paused["next_fires"]) == (
        "sold out",
        None,
        [],
    )
    resumed = api.made(f"{path}/resume")
    assert (resumed["paused_at"], resumed["pause_note"]) == (None, "")
    assert len(resumed["next_fires"]) == 5
    assert api.post(f"{path}/resume").json["code"] == "conflict"


def test_run_launches_and_says_what_came_of_it(
    api: Api, batch_id: str, database: Database, create: Callable[..., Batch]
) -> None:
    batch = create()
    path = f"/schedules/{make(api, str(batch.id))['id']}"
    fire = api.made(f"{path}/run")
    assert (fire["outcome"], fire["batch_id"]) == ("launched", str(batch.id))
    assert (fire["occurrence"], fire["reason_code"]) == (None, None)
    assert state_of(database, batch.id) is BatchState.EXPANDING
    assert api.made(f"{path}/run")["reason_code"] == "overlap"
    page = api.get(f"{path}/fires?limit=1").json
    assert [item["outcome"] for item in page["data"]] == ["skipped"]
    rest = api.get(f"{path}/fires?limit=1&cursor={page['next_cursor']}").json
    assert rest["data"] == [fire]


def test_a_deleted_schedule_is_gone(api: Api, batch_id: str) -> None:
    path = f"/schedules/{make(api, batch_id)['id']}"
    assert api.send("DELETE", path).status_code == 204
    assert api.get(path).status_code == 404
    assert api.post(f"{path}/run").status_code == 404
    assert api.get("/schedules").json["data"] == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"time_zone": "Europe/Atlantis"}, "time_zone"),
        ({"timing": {"kind": "cron", "expression": "* * * * *"}}, "timing.cron.expression"),
        ({"timing": {"kind": "once", "at": "2020-01-01T22:00"}}, "timing"),
        ({"timing": {"kind": "once", "at": "2099-01-01T22:00:00Z"}}, "timing.once.at"),
        ({"timing": {"kind": "weekly", "weekdays": [], "at": "22:00"}}, "timing.weekly.weekdays"),
        ({"deadline": "06:00+02:00"}, "deadline"),
        ({"mode": "rotation"}, "rotation_size"),
        ({"rotation_size": 3}, "rotation_size"),
        (
            {
                "mode": "rotation",
                "rotation_size": 3,
                "timing": {"kind": "once", "at": "2099-01-01T22:00"},
            },
            "mode",
        ),
        ({"budget_micros": 0}, "budget_micros"),
        ({"name": ""}, "name"),
        ({"name": "a\nb\x07"}, "name"),
        ({"batch_id": str(uuid4())}, None),
    ],
)
def test_what_cannot_be_is_refused_by_field(
    api: Api, batch_id: str, changes: dict[str, Any], field: str | None
) -> None:
    response = api.post("/schedules", {"batch_id": batch_id, **NIGHTLY, **changes})
    assert response.status_code in ((400, 422) if field else (404,)), response.text
    problem = response.json
    named = problem.get("field") or [item["field"] for item in problem.get("errors", [])]
    assert field is None or field in named
    assert api.get("/schedules").json["data"] == []


def test_a_batch_that_was_launched_can_be_repeated_but_not_launched_once_more(
    api: Api, batch_id: str
) -> None:
    api.made(f"/batches/{batch_id}/launch")
    later = (datetime.now(UTC) + timedelta(days=1)).replace(tzinfo=None)
    once = {"timing": {"kind": "once", "at": later.isoformat()}, "time_zone": "UTC"}
    refused = api.post("/schedules", {"batch_id": batch_id, **once})
    assert (refused.status_code, refused.json["field"]) == (400, "batch_id")
    assert make(api, batch_id)["batch_id"] == batch_id


def test_a_viewer_sees_schedules_and_changes_none(
    app: Flask, api: Api, batch_id: str, database: Database, workspace: Workspace
) -> None:
    path = f"/schedules/{make(api, batch_id)['id']}"
    viewer = Api(app, make_key(database, workspace, role=Role.VIEWER))
    assert viewer.get(path).status_code == 200
    for verb in ("pause", "run"):
        assert viewer.post(f"{path}/{verb}", {} if verb == "pause" else None).status_code == 403
