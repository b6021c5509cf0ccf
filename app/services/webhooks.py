"""Webhook endpoints as their owners steer them: make, change, test, rotate, replay."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.db import config_of
from app.errors import Conflict, InvalidInput, LimitExceeded, NotFound
from app.models import (
    WebhookDelivery,
    WebhookDeliveryState,
    WebhookDisabledReason,
    WebhookEndpoint,
    WebhookEvent,
    WebhookEventType,
)
from app.queues import Queue, ring_after_commit
from app.services.outbox import emit
from app.services.safe_http_addresses import check_url
from app.services.webhook_delivery import hold_pending
from app.services.webhook_signing import new_secret, seal

MAX_ENDPOINTS: Final = 20
MAX_DESCRIPTION_LENGTH: Final = 200
SECRET_OVERLAP: Final = timedelta(hours=24)
# What an endpoint may choose; a ping goes to the endpoint that it asks about.
CHOOSABLE_TYPES: Final = tuple(
    event_type for event_type in WebhookEventType if event_type != WebhookEventType.ENDPOINT_PING
)
# Chosen when somebody chooses nothing: all but the bundles, of which large batches send thousands.
DEFAULT_TYPES: Final = tuple(
    event_type for event_type in CHOOSABLE_TYPES if event_type != WebhookEventType.VARIANT_COMPLETED
)
_REPLAYABLE = (WebhookDeliveryState.FAILED, WebhookDeliveryState.HELD)


def create_endpoint(
    session: Session,
    actor: Actor,
    *,
    url: str,
    description: str = "",
    event_types: Collection[str] = DEFAULT_TYPES,
) -> tuple[WebhookEndpoint, str]:
    """Make an endpoint and return it with its signing secret, which cannot be read again later."""
    require(actor, Action.MANAGE)
    number = session.scalar(select(func.count()).where(_in_workspace(actor)))
    if (number or 0) >= MAX_ENDPOINTS:
        raise LimitExceeded(
            f"A workspace has at most {MAX_ENDPOINTS} webhook endpoints. Delete one that is no "
            "longer used."
        )
    secret = new_secret()
    endpoint = WebhookEndpoint(
        workspace_id=actor.workspace_id,
        url=_checked_url(session, url),
        description=_checked_description(description),
        event_types=_checked_types(event_types),
        secret_sealed=_seal(session, secret),
        created_by=actor.user_id,
    )
    session.add(endpoint)
    session.flush()
    return endpoint, secret


def list_endpoints(session: Session, actor: Actor) -> list[WebhookEndpoint]:
    """All endpoints of the workspace, the newest first."""
    require(actor, Action.MANAGE)
    return list(
        session.scalars(
            select(WebhookEndpoint)
            .where(_in_workspace(actor))
            .order_by(WebhookEndpoint.created_at.desc(), WebhookEndpoint.id.desc())
        )
    )


def get_endpoint(session: Session, actor: Actor, endpoint_id: UUID) -> WebhookEndpoint:
    require(actor, Action.MANAGE)
    return _get(session, actor, endpoint_id)


def update_endpoint(
    session: Session,
    actor: Actor,
    endpoint_id: UUID,
    *,
    url: str,
    description: str,
    event_types: Collection[str],
) -> WebhookEndpoint:
    """Change where an endpoint is and what it wants; what waits already goes to the new place."""
    require(actor, Action.MANAGE)
    endpoint = _get(session, actor, endpoint_id)
    endpoint.url = _checked_url(session, url)
    endpoint.description = _checked_description(description)
    endpoint.event_types = _checked_types(event_types)
    session.flush()
    return endpoint


def delete_endpoint(session: Session, actor: Actor, endpoint_id: UUID) -> None:
    """End an endpoint with its whole log; nothing is sent to it any more."""
    require(actor, Action.MANAGE)
    session.delete(_get(session, actor, endpoint_id))
    session.flush()


def enable_endpoint(session: Session, actor: Actor, endpoint_id: UUID) -> WebhookEndpoint:
    """Send what happens from now on; what was held back waits for `replay_failed`."""
    require(actor, Action.MANAGE)
    endpoint = _get(session, actor, endpoint_id, for_update=True)
    endpoint.disabled_at = endpoint.disabled_reason = None
    endpoint.failing_since = endpoint.throttled_until = None
    session.flush()
    return endpoint


def disable_endpoint(session: Session, actor: Actor, endpoint_id: UUID) -> WebhookEndpoint:
    """Send nothing until it is enabled; events are held. Also takes note of an automatic stop."""
    require(actor, Action.MANAGE)
    endpoint = _get(session, actor, endpoint_id, for_update=True)
    endpoint.disabled_at = endpoint.disabled_at or _now(session)
    endpoint.disabled_reason = WebhookDisabledReason.MANUAL
    hold_pending(session, endpoint.id)
    return endpoint


def rotate_secret(
    session: Session, actor: Actor, endpoint_id: UUID, *, at_once: bool = False
) -> tuple[WebhookEndpoint, str]:
    """A new signing secret; for 24 hours messages carry a signature of the old one too.

    `at_once` ends the old secret now, for one that has leaked. Conflict while a rotation is under
    way: a second one would cut off receivers that still hold the first secret.
    """
    require(actor, Action.MANAGE)
    endpoint = _get(session, actor, endpoint_id, for_update=True)
    now = _now(session)
    expires_at = endpoint.previous_secret_expires_at
    if not at_once and expires_at is not None and expires_at > now:
        raise Conflict(
            "The secret was rotated less than 24 hours ago, and the one before it still signs. "
            "Wait, or end the old secrets at once."
        )
    secret = new_secret()
    endpoint.previous_secret_sealed = None if at_once else endpoint.secret_sealed
    endpoint.previous_secret_expires_at = None if at_once else now + SECRET_OVERLAP
    endpoint.secret_sealed = _seal(session, secret)
    session.flush()
    return endpoint, secret


def ping(session: Session, actor: Actor, endpoint_id: UUID) -> UUID:
    """Send a test message, once; returns the id of its event."""
    require(actor, Action.MANAGE)
    endpoint = _get(session, actor, endpoint_id)
    if endpoint.disabled_at is not None:
        raise Conflict("The endpoint is switched off. Switch it on, then send a test message.")
    event_id = emit(
        session,
        actor.workspace_id,
        WebhookEventType.ENDPOINT_PING,
        {"endpoint_id": str(endpoint.id), "message": "It works."},
        endpoint_id=endpoint.id,
    )
    ring_after_commit(session, Queue.CONTROL)
    assert event_id is not None
    return event_id


def replay_delivery(session: Session, actor: Actor, delivery_id: UUID) -> WebhookDelivery:
    """Send one message again, with a fresh schedule and under the same `webhook-id`."""
    require(actor, Action.MANAGE)
    delivery = session.scalars(
        select(WebhookDelivery)
        .where(
            WebhookDelivery.id == delivery_id, WebhookDelivery.workspace_id == actor.workspace_id
        )
        .with_for_update()
    ).one_or_none()
    if delivery is None:
        raise NotFound("There is no such webhook delivery in this workspace.")
    _check_enabled(_get(session, actor, delivery.endpoint_id))
    if delivery.state is WebhookDeliveryState.PENDING and delivery.lease_token is not None:
        raise Conflict("This message is being sent right now.")
    _send_again(session, WebhookDelivery.id == delivery_id)
    session.refresh(delivery)
    return delivery


def replay_failed(
    session: Session, actor: Actor, endpoint_id: UUID, *, since: datetime | None = None
) -> int:
    """Send again all that failed or was held since then (ever, without it); returns how many."""
    require(actor, Action.MANAGE)
    _check_enabled(_get(session, actor, endpoint_id))
    happened = select(WebhookEvent.id).where(
        WebhookEvent.workspace_id == actor.workspace_id,
        WebhookEvent.event_type != WebhookEventType.ENDPOINT_PING,
    )
    if since is not None:
        happened = happened.where(WebhookEvent.created_at >= since)
    return _send_again(
        session,
        WebhookDelivery.endpoint_id == endpoint_id,
        WebhookDelivery.state.in_(_REPLAYABLE),
        WebhookDelivery.event_id.in_(happened),
    )


def _send_again(session: Session, *conditions: ColumnElement[bool]) -> int:
    replayed = session.execute(
        update(WebhookDelivery)
        .where(*conditions)
        .values(
            state=WebhookDeliveryState.PENDING,
            schedule_position=0,
            next_attempt_at=func.now(),
            finished_at=None,
        )
        .returning(WebhookDelivery.id),
        execution_options={"synchronize_session": False},
    ).all()
    if replayed:
        ring_after_commit(session, Queue.CONTROL)
    return len(replayed)


def _check_enabled(endpoint: WebhookEndpoint) -> None:
    if endpoint.disabled_at is not None:
        raise Conflict("The endpoint is switched off. Switch it on, then send messages again.")


def _get(
    session: Session, actor: Actor, endpoint_id: UUID, *, for_update: bool = False
) -> WebhookEndpoint:
    query = select(WebhookEndpoint).where(WebhookEndpoint.id == endpoint_id, _in_workspace(actor))
    if for_update:
        query = query.with_for_update(key_share=True)
    endpoint = session.scalars(query).one_or_none()
    if endpoint is None:
        raise NotFound("There is no such webhook endpoint in this workspace.")
    return endpoint


def _in_workspace(actor: Actor) -> ColumnElement[bool]:
    return WebhookEndpoint.workspace_id == actor.workspace_id


def _checked_url(session: Session, url: str) -> str:
    networks = config_of(session).webhook_allowed_networks
    return check_url(url.strip(), allowed_networks=networks).url


def _checked_description(description: str) -> str:
    description = " ".join(description.split())
    if len(description) > MAX_DESCRIPTION_LENGTH or "\0" in description:
        raise InvalidInput(
            f"Describe the endpoint in up to {MAX_DESCRIPTION_LENGTH} characters.",
            field="description",
        )
    return description


def _checked_types(event_types: Collection[str]) -> list[str]:
    unknown = sorted(set(event_types) - set(CHOOSABLE_TYPES))
    if unknown:
        raise InvalidInput(
            f"There is no event {unknown[0]!r}. Choose from: {', '.join(CHOOSABLE_TYPES)}.",
            field="event_types",
        )
    if not event_types:
        raise InvalidInput("Choose at least one event.", field="event_types")
    return [event_type.value for event_type in CHOOSABLE_TYPES if event_type in event_types]


def _seal(session: Session, secret: str) -> bytes:
    return seal(secret, secret_key=config_of(session).secret_key)


def _now(session: Session) -> datetime:
    return session.scalars(select(func.now())).one()
