"""Claims due webhook deliveries.

An attempt is written before it is sent, under a number that is never used again: two dispatchers
never send one attempt twice. A dispatcher that dies leaves an attempt without an end; when its
lease runs out the next attempt follows, since nobody knows whether the request arrived (at least
once, with the same `webhook-id`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Row, and_, exists, func, or_, select, true, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import config_of
from app.errors import ConfigurationError
from app.models import (
    LEASE_TOKENS,
    WebhookAttempt,
    WebhookDelivery,
    WebhookDeliveryState,
    WebhookEndpoint,
    WebhookEvent,
    WebhookEventType,
)
from app.models.base import new_id
from app.services.outbox import message_body, message_id
from app.services.webhook_signing import unseal

# Longer than any attempt can take: the request's limit, and the resolver's before it.
LEASE: Final = timedelta(seconds=120)
# Requests to one endpoint at a time, over all dispatchers; fewer to one that fails.
MAX_IN_FLIGHT: Final = 4
MAX_IN_FLIGHT_FAILING: Final = 1
LOST_ATTEMPT: Final = "The sender stopped before it noted an answer; the request may have arrived."


@dataclass(frozen=True, kw_only=True)
class DueDelivery:
    """An attempt to be made now: everything that is needed to send it and to record its end.

    `secrets` is empty when they cannot be read; `unreadable` then says why.
    """

    delivery_id: UUID
    endpoint_id: UUID
    token: int
    number: int
    event_type: WebhookEventType
    message_id: str
    url: str
    body: bytes
    secrets: tuple[str, ...]
    unreadable: str | None
    started_at: datetime
    is_failing: bool


def claim(
    session: Session, *, now: datetime, slots: int, slots_for_failing: int
) -> list[DueDelivery]:
    """Take up to `slots` due deliveries, the endpoint that has waited longest first.

    Endpoints that fail get the rest, one request at a time and `slots_for_failing` in all: what
    waits for its time limit there keeps no slot that another endpoint could use.
    """
    shares = _lock_shares(session, now=now, slots=slots, slots_for_failing=slots_for_failing)
    if not shares:
        return []
    chosen = _choose(session, shares, now=now, slots=slots)
    session.execute(
        update(WebhookDelivery)
        .where(WebhookDelivery.id.in_(chosen))
        .values(
            lease_token=LEASE_TOKENS.next_value(),
            lease_expires_at=now + LEASE,
            attempt_count=WebhookDelivery.attempt_count + 1,
        ),
        execution_options={"synchronize_session": False},
    )
    session.execute(
        update(WebhookEndpoint).where(WebhookEndpoint.id.in_(shares)).values(last_claimed_at=now),
        execution_options={"synchronize_session": False},
    )
    rows = _read_claimed(session, chosen)
    _open_attempts(session, rows, now=now)
    return [_due_delivery(session, row, now=now) for row in rows]


def _is_due(now: datetime) -> ColumnElement[bool]:
    return and_(
        WebhookDelivery.state == WebhookDeliveryState.PENDING,
        WebhookDelivery.next_attempt_at <= now,
        or_(
            WebhookDelivery.lease_expires_at.is_(None),
            WebhookDelivery.lease_expires_at <= now,
        ),
    )


def _lock_shares(
    session: Session, *, now: datetime, slots: int, slots_for_failing: int
) -> dict[UUID, int]:
    """Endpoints with something due, locked, and how many requests each may have in flight."""
    is_failing = WebhookEndpoint.failing_since.is_not(None)
    rows = session.execute(
        select(WebhookEndpoint.id, is_failing.label("is_failing"))
        .where(
            WebhookEndpoint.disabled_at.is_(None),
            or_(WebhookEndpoint.throttled_until.is_(None), WebhookEndpoint.throttled_until <= now),
            exists().where(WebhookDelivery.endpoint_id == WebhookEndpoint.id, _is_due(now)),
        )
        .order_by(is_failing, WebhookEndpoint.last_claimed_at.asc().nulls_first())
        .limit(slots + slots_for_failing)
        .with_for_update(key_share=True, skip_locked=True)
    ).all()
    healthy = [row.id for row in rows if not row.is_failing]
    failing = [row.id for row in rows if row.is_failing][: max(0, slots_for_failing)]
    return dict.fromkeys(healthy, MAX_IN_FLIGHT) | dict.fromkeys(failing, MAX_IN_FLIGHT_FAILING)


def _choose(session: Session, shares: dict[UUID, int], *, now: datetime, slots: int) -> list[UUID]:
    """Ids of due deliveries: of each endpoint as many as its share still allows.

    Statements after the one that locked the endpoints, so that they see what those who held the
    locks before have in flight.
    """
    in_flight = session.execute(
        select(WebhookDelivery.endpoint_id, func.count())
        .where(
            WebhookDelivery.endpoint_id.in_(shares),
            WebhookDelivery.state == WebhookDeliveryState.PENDING,
            WebhookDelivery.lease_expires_at > now,
        )
        .group_by(WebhookDelivery.endpoint_id)
    )
    room = shares | {row[0]: shares[row[0]] - row[1] for row in in_flight}
    oldest = (
        select(WebhookDelivery.id)
        .where(WebhookDelivery.endpoint_id == WebhookEndpoint.id, _is_due(now))
        .order_by(WebhookDelivery.next_attempt_at, WebhookDelivery.id)
        .limit(MAX_IN_FLIGHT)
        .with_for_update(skip_locked=True)
        .lateral()
    )
    found = session.execute(
        select(WebhookEndpoint.id, oldest.c.id)
        .join(oldest, true())
        .where(WebhookEndpoint.id.in_(shares))
    ).all()
    order = {endpoint_id: place for place, endpoint_id in enumerate(shares)}
    chosen: list[UUID] = []
    for endpoint_id, delivery_id in sorted(found, key=lambda row: order[row[0]]):
        if room[endpoint_id] > 0 and len(chosen) < slots:
            room[endpoint_id] -= 1
            chosen.append(delivery_id)
    return chosen


def _read_claimed(session: Session, delivery_ids: Sequence[UUID]) -> Sequence[Row[Any]]:
    return session.execute(
        select(
            WebhookDelivery.id,
            WebhookDelivery.workspace_id,
            WebhookDelivery.lease_token,
            WebhookDelivery.attempt_count,
            WebhookEvent.id.label("event_id"),
            WebhookEvent.event_type,
            WebhookEvent.created_at,
            WebhookEvent.data,
            WebhookEndpoint.id.label("endpoint_id"),
            WebhookEndpoint.url,
            WebhookEndpoint.secret_sealed,
            WebhookEndpoint.previous_secret_sealed,
            WebhookEndpoint.previous_secret_expires_at,
            WebhookEndpoint.failing_since,
        )
        .join(WebhookEvent, WebhookEvent.id == WebhookDelivery.event_id)
        .join(WebhookEndpoint, WebhookEndpoint.id == WebhookDelivery.endpoint_id)
        .where(WebhookDelivery.id.in_(delivery_ids))
        .order_by(WebhookDelivery.id)
    ).all()


def _open_attempts(session: Session, rows: Sequence[Row[Any]], *, now: datetime) -> None:
    ids = [row.id for row in rows]
    session.execute(
        update(WebhookAttempt)
        .where(WebhookAttempt.delivery_id.in_(ids), WebhookAttempt.finished_at.is_(None))
        .values(finished_at=now, error=LOST_ATTEMPT),
        execution_options={"synchronize_session": False},
    )
    attempts = [
        {
            "id": new_id(),
            "workspace_id": row.workspace_id,
            "delivery_id": row.id,
            "number": row.attempt_count,
            "started_at": now,
        }
        for row in rows
    ]
    if attempts:
        session.execute(insert(WebhookAttempt), attempts)


def _due_delivery(session: Session, row: Row[Any], *, now: datetime) -> DueDelivery:
    sealed = [row.secret_sealed]
    if row.previous_secret_expires_at is not None and row.previous_secret_expires_at > now:
        sealed.append(row.previous_secret_sealed)
    secret_key = config_of(session).secret_key
    unreadable = None
    secrets: tuple[str, ...] = ()
    try:
        secrets = tuple(unseal(secret, secret_key=secret_key) for secret in sealed)
    except ConfigurationError as error:
        unreadable = error.message
    return DueDelivery(
        delivery_id=row.id,
        endpoint_id=row.endpoint_id,
        token=row.lease_token,
        number=row.attempt_count,
        event_type=row.event_type,
        message_id=message_id(row.event_id),
        url=row.url,
        body=message_body(row.event_type, row.created_at, row.data).encode(),
        secrets=secrets,
        unreadable=unreadable,
        started_at=now,
        is_failing=row.failing_since is not None,
    )
