"""The pages of schedules: what the form refuses, how times are shown, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select

from app.access import Role
from app.db import Database
from app.models import Batch, Schedule, ScheduleMode, Workspace
from tests.web import Browser, make_member

pytestmark = pytest.mark.usefixtures("weights")
FORM: dict[str, Any] = {
    "name": "Nightly",
    "kind": "weekly",
    "date": "",
    "time": "22:00",
    "weekdays": ["mon", "tue"],
    "expression": "0 22 * * 1-5",
    "time_zone": "Europe/Berlin",
    "mode": "rotation",
    "rotation_size": "5",
    "deadline": "06:00",
    "deadline_policy": "pause",
    "missed_policy": "skip",
    "overlap_policy": "queue",
    "budget": "4.50",
}


@pytest.fixture
def batch_id(create: Callable[..., Batch]) -> UUID:
    return create().id


def rows(database: Database) -> list[Schedule]:
    with database.system_scope() as session:
        return list(session.scalars(select(Schedule).order_by(Schedule.id)))


def test_a_form_that_comes_back_changed_is_kept_as_it_was_typed(
    editor: Browser, batch_id: UUID, database: Database
) -> None:
    editor.get(f"/batches/{batch_id}/schedule")
    made = editor.post(f"/batches/{batch_id}/schedule", FORM)
    assert made.status_code == 302
    (schedule,) = rows(database)
    assert (schedule.mode, schedule.rotation_size) == (ScheduleMode.ROTATION, 5)
    assert schedule.budget_micros == 4_500_000
    assert "On schedule" in editor.get(f"/batches/{batch_id}").text

    form = editor.get(f"/schedules/{schedule.id}/edit").text
    assert 'value="4.5' in form
    assert 'value="queue" selected' in form
    changed = editor.post(f"/schedules/{schedule.id}/edit", {**FORM, "kind": "cron", "budget": ""})
    assert changed.status_code == 302
    (schedule,) = rows(database)
    assert schedule.timing == {"kind": "cron", "expression": "0 22 * * 1-5"}
    assert schedule.budget_micros is None
    assert "At 22:00 on Monday through Friday" in editor.get("/schedules").text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kind": "once"}, "date"),
        ({"kind": "once", "date": "2020-02-02"}, "date"),
        ({"weekdays": []}, "weekdays"),
        ({"time": "late"}, "time"),
        ({"kind": "cron", "expression": "0 22 * *"}, "expression"),
        ({"time_zone": "Berlin"}, "time_zone"),
        ({"rotation_size": "all"}, "rotation_size"),
        ({"deadline": "dawn"}, "deadline"),
        ({"budget": "-3"}, "budget"),
        ({"name": "x" * 201}, "name"),
    ],
)
def test_what_cannot_be_read_is_said_at_its_field_and_changes_nothing(
    editor: Browser,
    batch_id: UUID,
    database: Database,
    changes: dict[str, Any],
    field: str,
) -> None:
    editor.get(f"/batches/{batch_id}/schedule")
    response = editor.post(f"/batches/{batch_id}/schedule", {**FORM, **changes})
    assert response.status_code == 400
    assert f'id="{field}-error"' in response.text
    assert rows(database) == []


def test_times_are_shown_with_their_offset_and_what_the_clocks_do(editor: Browser) -> None:
    year = datetime.now(UTC).year + 1
    # The last Sunday of March.
    day = max(
        date
        for date in (datetime(year, 3, 25) + timedelta(days=n) for n in range(7))
        if date.weekday() == 6
    )
    query = {"kind": "once", "date": f"{day:%Y-%m-%d}", "time": "02:30"}
    berlin = editor.get("/schedules/times", query_string={**query, "time_zone": "Europe/Berlin"})
    assert f"{day:%-d %b %Y}, 03:00" in berlin.text
    assert "UTC+02:00" in berlin.text
    assert "The clocks skip 02:30 that day" in berlin.text
    past = editor.get("/schedules/times", query_string={**query, "date": "2020-01-01"})
    assert "There is no time zone" in past.text
    past = editor.get(
        "/schedules/times", query_string={**query, "date": "2020-01-01", "time_zone": "UTC"}
    )
    assert "This time has gone by" in past.text


def test_a_batch_that_was_launched_can_only_be_repeated(editor: Browser, batch_id: UUID) -> None:
    editor.get(f"/batches/{batch_id}")
    editor.post(f"/batches/{batch_id}/launch")
    form = editor.get(f"/batches/{batch_id}/schedule").text
    assert 'value="once"' not in form
    assert 'value="weekly" checked' in form


def test_a_viewer_sees_schedules_without_buttons(
    app: Flask, editor: Browser, batch_id: UUID, database: Database, workspace: Workspace
) -> None:
    editor.get(f"/batches/{batch_id}/schedule")
    editor.post(f"/batches/{batch_id}/schedule", FORM)
    viewer = Browser(app)
    viewer.sign_in(make_member(database, workspace, Role.VIEWER))
    page = viewer.get("/schedules").text
    assert "Nightly" in page
    assert "Run now" not in page
    (schedule,) = rows(database)
    assert "Run now" not in viewer.get(f"/schedules/{schedule.id}").text
