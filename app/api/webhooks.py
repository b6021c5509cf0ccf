"""Webhook endpoints, their secrets, and what became of messages."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from app.access import Action
from app.api.cursors import read_id_cursor
from app.api.routes import Call, Empty, Route, RouteKind, Routes
from app.api.schemas.base import paged
from app.api.schemas.webhooks import (
    PingSent,
    Replay,
    Replayed,
    SecretRotation,
    WebhookDelivery,
    WebhookDeliveryPage,
    WebhookDeliveryQuery,
    WebhookEndpoint,
    WebhookEndpointCreate,
    WebhookEndpointList,
    WebhookEndpointUpdate,
    WebhookSecret,
)
from app.services import webhooks, webhooks_log

routes = Routes()
TAG: Final = "Webhooks"
ALL: Final = "/webhook-endpoints"
ONE: Final = f"{ALL}/<uuid:endpoint_id>"


def _route(method: str, path: str, summary: str, **more: Any) -> Route[Any, Any]:
    return Route(
        method=method,
        path=path,
        action=Action.MANAGE,
        tag=TAG,
        summary=summary,
        **{"kind": RouteKind.OBJECT, **more},
    )


@routes.add(
    _route(
        "GET", ALL, "List webhook endpoints", kind=RouteKind.COLLECTION, answer=WebhookEndpointList
    )
)
def list_webhook_endpoints(call: Call[Empty, Empty]) -> WebhookEndpointList:
    rows = webhooks.list_endpoints(call.session, call.actor)
    return WebhookEndpointList(data=[WebhookEndpoint.of(row) for row in rows])


@routes.add(
    _route(
        "POST",
        ALL,
        "Make a webhook endpoint; its signing secret is in this answer alone",
        kind=RouteKind.CREATE,
        answer=WebhookSecret,
        body=WebhookEndpointCreate,
        status=201,
    )
)
def create_webhook_endpoint(call: Call[WebhookEndpointCreate, Empty]) -> WebhookSecret:
    body = call.body
    row, secret = webhooks.create_endpoint(
        call.session,
        call.actor,
        url=body.url,
        description=body.description,
        event_types=body.event_types,
    )
    return WebhookSecret(endpoint=WebhookEndpoint.of(row), secret=secret)


@routes.add(_route("GET", ONE, "Get a webhook endpoint", answer=WebhookEndpoint))
def get_webhook_endpoint(call: Call[Empty, Empty], endpoint_id: UUID) -> WebhookEndpoint:
    return WebhookEndpoint.of(webhooks.get_endpoint(call.session, call.actor, endpoint_id))


@routes.add(
    _route(
        "PATCH",
        ONE,
        "Change a webhook endpoint, or switch it on or off",
        answer=WebhookEndpoint,
        body=WebhookEndpointUpdate,
    )
)
def update_webhook_endpoint(
    call: Call[WebhookEndpointUpdate, Empty], endpoint_id: UUID
) -> WebhookEndpoint:
    body = call.body
    row = webhooks.get_endpoint(call.session, call.actor, endpoint_id)
    webhooks.update_endpoint(
        call.session,
        call.actor,
        endpoint_id,
        url=body.url if body.url is not None else row.url,
        description=body.description if body.description is not None else row.description,
        event_types=body.event_types if body.event_types is not None else row.event_types,
    )
    if body.is_enabled is not None:
        switch = webhooks.enable_endpoint if body.is_enabled else webhooks.disable_endpoint
        switch(call.session, call.actor, endpoint_id)
    return WebhookEndpoint.of(webhooks.get_endpoint(call.session, call.actor, endpoint_id))


@routes.add(
    _route("DELETE", ONE, "Delete a webhook endpoint with its log", answer=None, status=204)
)
def delete_webhook_endpoint(call: Call[Empty, Empty], endpoint_id: UUID) -> None:
    webhooks.delete_endpoint(call.session, call.actor, endpoint_id)


@routes.add(
    _route(
        "POST",
        f"{ONE}/rotate-secret",
        "Get a new signing secret",
        answer=WebhookSecret,
        body=SecretRotation,
    )
)
def rotate_webhook_secret(call: Call[SecretRotation, Empty], endpoint_id: UUID) -> WebhookSecret:
    row, secret = webhooks.rotate_secret(
        call.session, call.actor, endpoint_id, at_once=call.body.at_once
    )
    return WebhookSecret(endpoint=WebhookEndpoint.of(row), secret=secret)


@routes.add(_route("POST", f"{ONE}/ping", "Send a test message", answer=PingSent, status=202))
def ping_webhook_endpoint(call: Call[Empty, Empty], endpoint_id: UUID) -> PingSent:
    return PingSent(event_id=webhooks.ping(call.session, call.actor, endpoint_id))


@routes.add(
    _route(
        "POST",
        f"{ONE}/replay",
        "Send again what failed or was held back",
        answer=Replayed,
        body=Replay,
        status=202,
    )
)
def replay_webhook_endpoint(call: Call[Replay, Empty], endpoint_id: UUID) -> Replayed:
    number = webhooks.replay_failed(call.session, call.actor, endpoint_id, since=call.body.since)
    return Replayed(replayed=number)


@routes.add(
    _route(
        "GET",
        "/webhook-deliveries",
        "List deliveries, the newest first",
        kind=RouteKind.COLLECTION,
        answer=WebhookDeliveryPage,
        query=WebhookDeliveryQuery,
    )
)
def list_webhook_deliveries(call: Call[Empty, WebhookDeliveryQuery]) -> WebhookDeliveryPage:
    rows = webhooks_log.list_deliveries(
        call.session,
        call.actor,
        endpoint_id=call.query.endpoint_id,
        state=call.query.state,
        limit=call.query.limit + 1,
        before=read_id_cursor(call.actor, call.query.cursor),
    )
    data, cursor = paged(call, rows, WebhookDelivery.of, lambda row: row.id)
    return WebhookDeliveryPage(data=data, next_cursor=cursor)


@routes.add(
    _route(
        "POST",
        "/webhook-deliveries/<uuid:delivery_id>/replay",
        "Send one message again, under the same `webhook-id`",
        answer=WebhookDelivery,
        status=202,
    )
)
def replay_webhook_delivery(call: Call[Empty, Empty], delivery_id: UUID) -> WebhookDelivery:
    webhooks.replay_delivery(call.session, call.actor, delivery_id)
    return WebhookDelivery.of(
        webhooks_log.get_delivery(call.session, call.actor, delivery_id).summary
    )
