"""Records how attempts to deliver a webhook ended, and what follows for their endpoint.

The end of an attempt is taken only from whoever holds the lease of its delivery.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.db import config_of
from app.models import (
    WebhookAttempt,
    WebhookDelivery,
    WebhookDeliveryState,
    WebhookDisabledReason,
    WebhookEndpoint,
    WebhookEventType,
)
from app.services.outbox import emit
from app.services.webhook_claiming import DueDelivery
from app.services.webhook_delivery_schedule import (
    DISABLE_AFTER,
    failing_since,
    max_attempts,
    next_delay_s,
    retry_after_s,
)


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """What came back: an answer with its status, or an error and no status."""

    status: int | None = None
    error: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    answer: str | None = None
    latency_ms: int = 0

    @property
    def is_success(self) -> bool:
        return self.status is not None and HTTPStatus.OK <= self.status < 300


def finish(session: Session, due: DueDelivery, end: AttemptEnd, *, now: datetime) -> bool:
    """Record the end of an attempt and what follows; False when the lease was lost meanwhile."""
    # The endpoint first, as everybody who locks both.
    endpoint = session.scalars(
        select(WebhookEndpoint)
        .where(WebhookEndpoint.id == due.endpoint_id)
        .with_for_update(key_share=True)
    ).one_or_none()
    delivery = session.scalars(
        select(WebhookDelivery)
        .where(WebhookDelivery.id == due.delivery_id, WebhookDelivery.lease_token == due.token)
        .with_for_update()
    ).one_or_none()
    if endpoint is None or delivery is None:
        return False
    _close_attempt(session, due, end, now=now)
    delivery.schedule_position += 1
    delivery.lease_token = delivery.lease_expires_at = None
    delivery.last_status, delivery.last_error = end.status, end.error
    if end.is_success:
        delivery.state = WebhookDeliveryState.SUCCEEDED
        delivery.finished_at = now
        endpoint.last_succeeded_at = now
        endpoint.failing_since = endpoint.throttled_until = None
    else:
        _record_failure(session, endpoint, delivery, due=due, end=end, now=now)
    session.flush()
    return True


def _record_failure(
    session: Session,
    endpoint: WebhookEndpoint,
    delivery: WebhookDelivery,
    *,
    due: DueDelivery,
    end: AttemptEnd,
    now: datetime,
) -> None:
    pause_s = retry_after_s(end.status or 0, dict(end.headers), now=now)
    if pause_s:
        endpoint.throttled_until = now + timedelta(seconds=pause_s)
    endpoint.failing_since = failing_since(
        since=endpoint.failing_since, last_failed_at=endpoint.last_failed_at, now=now
    )
    endpoint.last_failed_at = now
    if delivery.schedule_position >= max_attempts(due.event_type):
        delivery.state = WebhookDeliveryState.FAILED
        delivery.finished_at = now
    else:
        delay_s = next_delay_s(delivery.schedule_position, retry_after_s=pause_s)
        delivery.next_attempt_at = now + timedelta(seconds=delay_s)
    if endpoint.disabled_at is not None:
        hold_pending(session, endpoint.id)
    elif end.status == HTTPStatus.GONE:
        _disable(session, endpoint, WebhookDisabledReason.GONE, now=now)
    elif now - endpoint.failing_since >= DISABLE_AFTER:
        _disable(session, endpoint, WebhookDisabledReason.FAILING, now=now)


def hold_pending(session: Session, endpoint_id: UUID) -> None:
    """Hold back what waits for an endpoint that is off; what is being sent ends by itself."""
    session.flush()
    session.execute(
        update(WebhookDelivery)
        .where(
            WebhookDelivery.endpoint_id == endpoint_id,
            WebhookDelivery.state == WebhookDeliveryState.PENDING,
            WebhookDelivery.lease_token.is_(None),
        )
        .values(state=WebhookDeliveryState.HELD),
        execution_options={"synchronize_session": "fetch"},
    )


def _disable(
    session: Session, endpoint: WebhookEndpoint, reason: WebhookDisabledReason, *, now: datetime
) -> None:
    endpoint.disabled_at = now
    endpoint.disabled_reason = reason
    hold_pending(session, endpoint.id)
    data = {
        "endpoint_id": str(endpoint.id),
        "url": endpoint.url,
        "reason": reason.value,
        "failing_since": endpoint.failing_since.isoformat() if endpoint.failing_since else None,
        "links": {
            "dashboard": f"{config_of(session).base_url}/settings/webhooks/{endpoint.id}",
        },
    }
    emit(session, endpoint.workspace_id, WebhookEventType.ENDPOINT_DISABLED, data)


def _close_attempt(session: Session, due: DueDelivery, end: AttemptEnd, *, now: datetime) -> None:
    session.execute(
        update(WebhookAttempt)
        .where(WebhookAttempt.delivery_id == due.delivery_id, WebhookAttempt.number == due.number)
        .values(
            finished_at=now,
            latency_ms=end.latency_ms,
            status=end.status,
            error=end.error,
            answer=end.answer,
        ),
        execution_options={"synchronize_session": False},
    )
