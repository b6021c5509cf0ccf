"""What became of webhook messages: deliveries, their attempts, and what owners should know."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import NotFound
from app.models import (
    WebhookAttempt,
    WebhookDelivery,
    WebhookDeliveryState,
    WebhookDisabledReason,
    WebhookEndpoint,
    WebhookEvent,
    WebhookEventType,
)
from app.services.outbox import message_body, message_id

MAX_DELIVERIES: Final = 50


@dataclass(frozen=True, kw_only=True)
class DeliverySummary:
    """One line of the log."""

    id: UUID
    endpoint_id: UUID
    event_type: WebhookEventType
    message_id: str
    state: WebhookDeliveryState
    attempt_count: int
    last_status: int | None
    last_error: str | None
    created_at: datetime
    next_attempt_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class DeliveryDetails:
    """One delivery with the body that is sent and every attempt, the newest first."""

    summary: DeliverySummary
    body: str
    attempts: list[WebhookAttempt]


def list_deliveries(
    session: Session,
    actor: Actor,
    *,
    endpoint_id: UUID | None = None,
    state: WebhookDeliveryState | None = None,
    limit: int = MAX_DELIVERIES,
    before: UUID | None = None,
) -> list[DeliverySummary]:
    """The newest deliveries first; `before` is the last id of the page before (ids are in time)."""
    require(actor, Action.MANAGE)
    query = (
        select(WebhookDelivery, WebhookEvent.event_type)
        .join(WebhookEvent, WebhookEvent.id == WebhookDelivery.event_id)
        .where(WebhookDelivery.workspace_id == actor.workspace_id)
    )
    if endpoint_id is not None:
        query = query.where(WebhookDelivery.endpoint_id == endpoint_id)
    if state is not None:
        query = query.where(WebhookDelivery.state == state)
    if before is not None:
        query = query.where(WebhookDelivery.id < before)
    rows = session.execute(query.order_by(WebhookDelivery.id.desc()).limit(limit))
    return [_summary(delivery, event_type) for delivery, event_type in rows]


def get_delivery(session: Session, actor: Actor, delivery_id: UUID) -> DeliveryDetails:
    require(actor, Action.MANAGE)
    row = session.execute(
        select(WebhookDelivery, WebhookEvent)
        .join(WebhookEvent, WebhookEvent.id == WebhookDelivery.event_id)
        .where(
            WebhookDelivery.id == delivery_id, WebhookDelivery.workspace_id == actor.workspace_id
        )
    ).one_or_none()
    if row is None:
        raise NotFound("There is no such webhook delivery in this workspace.")
    delivery, event = row
    attempts = session.scalars(
        select(WebhookAttempt)
        .where(WebhookAttempt.delivery_id == delivery_id)
        .order_by(WebhookAttempt.number.desc())
    )
    return DeliveryDetails(
        summary=_summary(delivery, event.event_type),
        body=message_body(event.event_type, event.created_at, event.data),
        attempts=list(attempts),
    )


def count_deliveries(
    session: Session, actor: Actor, endpoint_id: UUID
) -> dict[WebhookDeliveryState, int]:
    """How many deliveries of an endpoint are in each state; tests of it are no messages."""
    require(actor, Action.MANAGE)
    rows = session.execute(
        select(WebhookDelivery.state, func.count().label("number"))
        .join(WebhookEvent, WebhookEvent.id == WebhookDelivery.event_id)
        .where(
            WebhookDelivery.workspace_id == actor.workspace_id,
            WebhookDelivery.endpoint_id == endpoint_id,
            WebhookEvent.event_type != WebhookEventType.ENDPOINT_PING,
        )
        .group_by(WebhookDelivery.state)
    )
    return {row.state: row.number for row in rows}


def list_notices(session: Session, actor: Actor) -> list[WebhookEndpoint]:
    """Endpoints that were switched off without a person; empty for who may not manage them.

    A notice ends when an owner switches the endpoint on, keeps it off or deletes it.
    """
    if not actor.may(Action.MANAGE):
        return []
    return list(
        session.scalars(
            select(WebhookEndpoint)
            .where(
                WebhookEndpoint.workspace_id == actor.workspace_id,
                WebhookEndpoint.disabled_reason.in_(
                    (WebhookDisabledReason.GONE, WebhookDisabledReason.FAILING)
                ),
            )
            .order_by(WebhookEndpoint.disabled_at)
        )
    )


def _summary(delivery: WebhookDelivery, event_type: WebhookEventType) -> DeliverySummary:
    is_pending = delivery.state is WebhookDeliveryState.PENDING
    return DeliverySummary(
        id=delivery.id,
        endpoint_id=delivery.endpoint_id,
        event_type=event_type,
        message_id=message_id(delivery.event_id),
        state=delivery.state,
        attempt_count=delivery.attempt_count,
        last_status=delivery.last_status,
        last_error=delivery.last_error,
        created_at=delivery.created_at,
        next_attempt_at=delivery.next_attempt_at if is_pending else None,
    )
