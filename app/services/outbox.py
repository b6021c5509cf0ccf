"""The outbox of webhook events: written with the change that they tell of, then fanned out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Exists, delete, exists, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.models import (
    WebhookDelivery,
    WebhookDeliveryState,
    WebhookEndpoint,
    WebhookEvent,
    WebhookEventType,
)
from app.models.base import new_id

# Standard Webhooks asks for less than 20 kB; the envelope and a margin are kept free.
MAX_DATA_BYTES: Final = 18_000
FAN_OUT_SIZE: Final = 100
# How long events are kept with their deliveries: for the log, and to be sent again.
RETENTION: Final = timedelta(days=30)
PURGE_SIZE: Final = 1_000

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def emit(
    session: Session,
    workspace_id: UUID,
    event_type: WebhookEventType,
    data: dict[str, Any],
    *,
    once_key: str | None = None,
    endpoint_id: UUID | None = None,
) -> UUID | None:
    """Write an event in this transaction: it is told if and only if the transaction commits.

    With `once_key` the workspace is told at most once; None comes back the second time.
    `endpoint_id` names the only receiver, whatever types it has chosen; its delivery is made here.
    """
    size_bytes = len(_encode(data).encode())
    if size_bytes > MAX_DATA_BYTES:
        raise ValueError(f"the data of {event_type} has {size_bytes:,} bytes; send links instead")
    event_id = session.scalar(
        insert(WebhookEvent)
        .values(
            id=new_id(),
            workspace_id=workspace_id,
            event_type=event_type,
            data=data,
            once_key=once_key,
            endpoint_id=endpoint_id,
            fanned_out_at=func.now() if endpoint_id else None,
        )
        .on_conflict_do_nothing(index_elements=["workspace_id", "once_key"])
        .returning(WebhookEvent.id)
    )
    if event_id is not None and endpoint_id is not None:
        delivery = WebhookDelivery(
            workspace_id=workspace_id,
            endpoint_id=endpoint_id,
            event_id=event_id,
            state=WebhookDeliveryState.PENDING,
            next_attempt_at=func.now(),
        )
        session.add(delivery)
        session.flush()
    return event_id


def is_wanted(
    event_type: WebhookEventType,
    workspace_id: ColumnElement[UUID] | InstrumentedAttribute[UUID] | UUID,
) -> Exists:
    """The condition that some endpoint of the workspace has chosen the type."""
    return exists().where(
        WebhookEndpoint.workspace_id == workspace_id,
        WebhookEndpoint.event_types.op("?")(event_type.value),
    )


def fan_out(session: Session, *, now: datetime, limit: int = FAN_OUT_SIZE) -> int:
    """Make a delivery for each endpoint that wants a new event; returns how many events.

    Endpoints that are switched off get it too, held back, so that a replay can send it.
    """
    events = session.scalars(
        select(WebhookEvent)
        .where(WebhookEvent.fanned_out_at.is_(None))
        .order_by(WebhookEvent.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).all()
    endpoints = _lock_endpoints(session, {event.workspace_id for event in events})
    rows = [
        {
            "workspace_id": event.workspace_id,
            "endpoint_id": endpoint.id,
            "event_id": event.id,
            "state": WebhookDeliveryState.HELD
            if endpoint.disabled_at
            else WebhookDeliveryState.PENDING,
            "next_attempt_at": now,
        }
        for event in events
        for endpoint in endpoints
        if _is_for(event, endpoint)
    ]
    if rows:
        session.execute(insert(WebhookDelivery), rows)
    for event in events:
        event.fanned_out_at = now
    session.flush()
    return len(events)


def purge(session: Session, *, now: datetime, limit: int = PURGE_SIZE) -> int:
    """Drop the oldest events beyond their time, with all about them; returns how many."""
    old = (
        select(WebhookEvent.id)
        .where(WebhookEvent.created_at < now - RETENTION)
        .order_by(WebhookEvent.created_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    dropped = session.execute(
        delete(WebhookEvent).where(WebhookEvent.id.in_(old)).returning(WebhookEvent.id),
        execution_options={"synchronize_session": False},
    )
    return len(dropped.all())


def message_id(event_id: UUID) -> str:
    """The `webhook-id` of an event; ids sort in the order of the events."""
    return f"evt_{event_id.hex}"


def message_body(event_type: WebhookEventType, occurred_at: datetime, data: dict[str, Any]) -> str:
    """What is sent: the same text at every attempt, since signatures cover it."""
    return _encode({"type": event_type.value, "timestamp": occurred_at.isoformat(), "data": data})


def _lock_endpoints(session: Session, workspace_ids: Iterable[UUID]) -> Sequence[WebhookEndpoint]:
    # Against one that is switched off meanwhile: its new deliveries would wait for ever.
    return session.scalars(
        select(WebhookEndpoint)
        .where(WebhookEndpoint.workspace_id.in_(workspace_ids))
        .order_by(WebhookEndpoint.id)
        .with_for_update(read=True)
    ).all()


def _is_for(event: WebhookEvent, endpoint: WebhookEndpoint) -> bool:
    # That it is off itself is nothing that an endpoint could hear in time.
    if event.data.get("endpoint_id") == str(endpoint.id):
        return False
    return event.workspace_id == endpoint.workspace_id and event.event_type in endpoint.event_types
