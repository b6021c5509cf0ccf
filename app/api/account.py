"""The workspace behind a key, its usage, and the models."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from app.access import ALLOWED, Action
from app.api.routes import Call, Empty, Route, RouteKind, Routes
from app.api.schemas.account import (
    Account,
    Model,
    ModelList,
    UsageDay,
    UsageQuery,
    UsageReport,
)
from app.errors import InvalidInput
from app.extensions import extensions
from app.models import Workspace
from app.services import usage
from engine import registry

routes = Routes()
TAG: Final = "Account"
DEFAULT_DAYS: Final = 30
MAX_DAYS: Final = 400


@routes.add(
    Route(
        method="GET",
        path="/account",
        kind=RouteKind.COLLECTION,
        action=Action.VIEW,
        tag=TAG,
        summary="See whose key this is and what it may do",
        answer=Account,
    )
)
def get_account(call: Call[Empty, Empty]) -> Account:
    workspace = call.session.get_one(Workspace, call.actor.workspace_id)
    allowed = [action for action in ALLOWED[call.actor.role] if call.actor.may(action)]
    assert call.actor.api_key_id is not None
    return Account(
        workspace_id=workspace.id,
        workspace_name=workspace.name,
        api_key_id=call.actor.api_key_id,
        role=call.actor.role,
        scopes=sorted(allowed),
        currency=workspace.currency,
        max_variants_per_batch=workspace.max_variants_per_batch,
        requests_per_minute=extensions().rate_limiter.limit,
    )


@routes.add(
    Route(
        method="GET",
        path="/usage",
        kind=RouteKind.COLLECTION,
        action=Action.VIEW,
        tag=TAG,
        summary="See renders and cost by day",
        answer=UsageReport,
        query=UsageQuery,
    )
)
def get_usage(call: Call[Empty, UsageQuery]) -> UsageReport:
    until = call.query.until or datetime.now(UTC).date()
    try:
        since = call.query.since or until - timedelta(days=DEFAULT_DAYS - 1)
    except OverflowError:
        since = until
    if not 0 <= (until - since).days < MAX_DAYS:
        raise InvalidInput(
            f"Ask for up to {MAX_DAYS} days, `since` not after `until`.", field="since"
        )
    days = usage.list_usage(call.session, call.actor, since=since, until=until)
    workspace = call.session.get_one(Workspace, call.actor.workspace_id)
    return UsageReport(
        since=since,
        until=until,
        currency=workspace.currency,
        renders=sum(day.renders for day in days),
        cost_micros=sum(day.cost_micros for day in days),
        days=[UsageDay.of(day) for day in days],
    )


@routes.add(
    Route(
        method="GET",
        path="/models",
        kind=RouteKind.COLLECTION,
        action=Action.VIEW,
        tag="Models",
        summary="List models with what they can do and what a render costs",
        answer=ModelList,
    )
)
def list_models(call: Call[Empty, Empty]) -> ModelList:
    workspace = call.session.get_one(Workspace, call.actor.workspace_id)
    rate = workspace.rate_micros_per_unit
    return ModelList(
        currency=workspace.currency,
        data=[Model.of(spec, rate_micros_per_unit=rate) for spec in registry.list_models()],
    )
