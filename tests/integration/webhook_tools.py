"""What the tests of webhooks share: endpoints, a clock that can be moved, a loop run by hand."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.access import Actor
from app.config import Config
from app.db import Database
from app.models import (
    WebhookAttempt,
    WebhookDelivery,
    WebhookDeliveryState,
    WebhookEndpoint,
    WebhookEvent,
    WebhookEventType,
)
from app.services import outbox, webhooks
from workers.webhook_loop import WebhookLoop

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
EVENT = WebhookEventType.BATCH_COMPLETED


class MovableClock:
    """The real time, moved ahead as far as a test wants."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def __call__(self, session: Session | None = None) -> datetime:
        return datetime.now(UTC) + self._ahead

    def move_to(self, moment: datetime) -> None:
        self._ahead += max(timedelta(), moment - self())

    def move(self, **amount: float) -> None:
        self._ahead += timedelta(**amount)


class Desk:
    """A workspace with webhooks, and a dispatcher whose turns the test takes itself."""

    def __init__(self, database: Database, config: Config, actor: Actor) -> None:
        self.database = database
        self.config = config
        self.actor = actor
        self.clock = MovableClock()
        self.loop = WebhookLoop(database, config, clock=self.clock)

    def add_endpoint(self, url: str, **options: Any) -> tuple[UUID, str]:
        """The id of a new endpoint and its secret."""
        with self.database.workspace_scope(self.actor) as session:
            endpoint, secret = webhooks.create_endpoint(session, self.actor, url=url, **options)
            return endpoint.id, secret

    def emit(
        self, number: int = 1, event_type: WebhookEventType = EVENT, **data: Any
    ) -> list[UUID]:
        with self.database.system_scope() as session:
            ids = [
                outbox.emit(session, self.actor.workspace_id, event_type, {"n": n} | data)
                for n in range(number)
            ]
        return [event_id for event_id in ids if event_id is not None]

    def work(self) -> None:
        """Send all that is due by the clock, and what becomes due at once by it."""
        while True:
            before = self.attempt_count()
            self.loop.turn()
            assert self.loop.join(30)
            if self.attempt_count() == before:
                return

    def work_until(self, end: datetime) -> None:
        """Let the time pass to `end`, with every attempt made when it is due."""
        while True:
            self.work()
            due_at = self.next_attempt_at()
            if due_at is None or due_at > end:
                break
            self.clock.move_to(due_at)
        self.clock.move_to(end)

    def next_attempt_at(self) -> datetime | None:
        """When something can be sent next, the pauses that endpoints ask for included."""
        may_be_sent_at = func.greatest(
            WebhookDelivery.next_attempt_at, WebhookEndpoint.throttled_until
        )
        with self.database.system_scope() as session:
            return session.scalar(
                select(func.min(may_be_sent_at))
                .join(WebhookEndpoint, WebhookEndpoint.id == WebhookDelivery.endpoint_id)
                .where(WebhookDelivery.state == WebhookDeliveryState.PENDING)
            )

    def attempt_count(self) -> int:
        with self.database.system_scope() as session:
            return session.scalar(select(func.count()).select_from(WebhookAttempt)) or 0

    def states(self, endpoint_id: UUID | None = None) -> dict[str, int]:
        """How many deliveries are in each state."""
        query = select(WebhookDelivery.state, func.count()).group_by(WebhookDelivery.state)
        if endpoint_id is not None:
            query = query.where(WebhookDelivery.endpoint_id == endpoint_id)
        with self.database.system_scope() as session:
            return {row[0].value: row[1] for row in session.execute(query)}

    def attempts(self, event_id: UUID) -> list[WebhookAttempt]:
        with self.database.system_scope() as session:
            return list(
                session.scalars(
                    select(WebhookAttempt)
                    .join(WebhookDelivery, WebhookDelivery.id == WebhookAttempt.delivery_id)
                    .where(WebhookDelivery.event_id == event_id)
                    .order_by(WebhookAttempt.number)
                )
            )

    def events(self, event_type: WebhookEventType) -> list[WebhookEvent]:
        with self.database.system_scope() as session:
            return list(
                session.scalars(
                    select(WebhookEvent)
                    .where(WebhookEvent.event_type == event_type)
                    .order_by(WebhookEvent.id)
                )
            )
