"""Schedules: batches launched by the clock, paused, changed, fired by hand, and their log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from app.access import Action
from app.api.cursors import read_id_cursor
from app.api.routes import Call, Empty, Route, RouteKind, Routes
from app.api.schemas.base import PageQuery, paged
from app.api.schemas.schedules import (
    Schedule,
    ScheduleCreate,
    ScheduleFire,
    ScheduleFirePage,
    SchedulePage,
    SchedulePause,
    ScheduleQuery,
    ScheduleUpdate,
)
from app.models import Schedule as ScheduleRow
from app.services import schedule_firing, schedules
from app.services.schedule_rules import ScheduleRules, now_of, rules_of

routes = Routes()
TAG: Final = "Schedules"
ALL: Final = "/schedules"
ONE: Final = f"{ALL}/<uuid:schedule_id>"
# Of a new schedule, besides its rules.
OWN: Final = frozenset({"batch_id", "name"})
# Null means something for these; for the others it means that they stay.
NULLABLE: Final = frozenset({"deadline", "budget_micros", "rotation_size"})


def _route(method: str, path: str, summary: str, **more: Any) -> Route[Any, Any]:
    return Route(
        method=method,
        path=path,
        tag=TAG,
        summary=summary,
        **{"kind": RouteKind.OBJECT, "action": Action.LAUNCH, "answer": Schedule, **more},
    )


@routes.add(
    _route(
        "GET",
        ALL,
        "List schedules, the newest first",
        kind=RouteKind.COLLECTION,
        action=Action.VIEW,
        answer=SchedulePage,
        query=ScheduleQuery,
    )
)
def list_schedules(call: Call[Empty, ScheduleQuery]) -> SchedulePage:
    rows = schedules.list_schedules(
        call.session,
        call.actor,
        campaign_id=call.query.campaign_id,
        batch_id=call.query.batch_id,
        limit=call.query.limit + 1,
        before=read_id_cursor(call.actor, call.query.cursor),
    )
    data, cursor = paged(call, rows, lambda row: _show(call, row), lambda row: row.id)
    return SchedulePage(data=data, next_cursor=cursor)


@routes.add(
    _route(
        "POST",
        ALL,
        "Launch a batch later, or batches like it again and again",
        kind=RouteKind.CREATE,
        body=ScheduleCreate,
        status=201,
    )
)
def create_schedule(call: Call[ScheduleCreate, Empty]) -> Schedule:
    body = call.body
    rules = ScheduleRules(
        **{name: getattr(body, name) for name in type(body).model_fields if name not in OWN}
    )
    row = schedules.create_schedule(
        call.session, call.actor, batch_id=body.batch_id, name=body.name, rules=rules
    )
    return _show(call, row)


@routes.add(_route("GET", ONE, "Get a schedule with its next five times", action=Action.VIEW))
def get_schedule(call: Call[Empty, Empty], schedule_id: UUID) -> Schedule:
    return _show(call, schedules.get_schedule(call.session, call.actor, schedule_id))


@routes.add(
    _route("PATCH", ONE, "Change a schedule; its next time is found anew", body=ScheduleUpdate)
)
def update_schedule(call: Call[ScheduleUpdate, Empty], schedule_id: UUID) -> Schedule:
    row = schedules.get_schedule(call.session, call.actor, schedule_id)
    sent = {name: getattr(call.body, name) for name in call.body.model_fields_set}
    changes = {name: value for name, value in sent.items() if value is not None or name in NULLABLE}
    name = changes.pop("name", row.name)
    rules = replace(rules_of(row), **changes)
    return _show(
        call,
        schedules.update_schedule(call.session, call.actor, schedule_id, name=name, rules=rules),
    )


@routes.add(
    _route("DELETE", ONE, "Delete a schedule; what it launched stays", answer=None, status=204)
)
def delete_schedule(call: Call[Empty, Empty], schedule_id: UUID) -> None:
    schedules.delete_schedule(call.session, call.actor, schedule_id)


@routes.add(_route("POST", f"{ONE}/pause", "Fire no more until it is resumed", body=SchedulePause))
def pause_schedule(call: Call[SchedulePause, Empty], schedule_id: UUID) -> Schedule:
    row = schedules.pause_schedule(call.session, call.actor, schedule_id, note=call.body.note)
    return _show(call, row)


@routes.add(
    _route("POST", f"{ONE}/resume", "Fire again; what went by in the pause is not made up for")
)
def resume_schedule(call: Call[Empty, Empty], schedule_id: UUID) -> Schedule:
    return _show(call, schedules.resume_schedule(call.session, call.actor, schedule_id))


@routes.add(
    _route(
        "POST",
        f"{ONE}/run",
        "Fire now, besides its times; the answer says what came of it",
        answer=ScheduleFire,
    )
)
def run_schedule(call: Call[Empty, Empty], schedule_id: UUID) -> ScheduleFire:
    fire = schedule_firing.run_now(call.session, call.actor, schedule_id, now=now_of(call.session))
    call.session.refresh(fire)
    return ScheduleFire.of(fire)


@routes.add(
    _route(
        "GET",
        f"{ONE}/fires",
        "List what became of its times, the last first",
        action=Action.VIEW,
        answer=ScheduleFirePage,
        query=PageQuery,
    )
)
def list_schedule_fires(call: Call[Empty, PageQuery], schedule_id: UUID) -> ScheduleFirePage:
    rows = schedules.list_fires(
        call.session,
        call.actor,
        schedule_id,
        limit=call.query.limit + 1,
        before=read_id_cursor(call.actor, call.query.cursor),
    )
    data, cursor = paged(call, rows, ScheduleFire.of, lambda row: row.id)
    return ScheduleFirePage(data=data, next_cursor=cursor)


def _show(call: Call[Any, Any], row: ScheduleRow) -> Schedule:
    return Schedule.of(row, schedules.list_next(call.session, row))
