"""Who is told of what: webhook endpoints, the outbox of events, deliveries and their attempts."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identified, Timestamped, WorkspaceScoped, state_type


class WebhookEventType(StrEnum):
    """Everything that an endpoint can be told; each has code that emits it."""

    BATCH_EXPANDED = "batch.expanded"
    BATCH_PROGRESSED = "batch.progressed"
    BATCH_COMPLETED = "batch.completed"
    BATCH_FAILED = "batch.failed"
    BATCH_CANCELLED = "batch.cancelled"
    BUDGET_REACHED = "budget.reached"
    VARIANT_COMPLETED = "variant.completed"
    REVIEW_COMPLETED = "review.completed"
    ENDPOINT_DISABLED = "endpoint.disabled"
    ENDPOINT_PING = "endpoint.ping"


class WebhookDisabledReason(StrEnum):
    MANUAL = "manual"  # a person switched it off
    GONE = "gone"  # it answered 410
    FAILING = "failing"  # nothing but failures for days


class WebhookDeliveryState(StrEnum):
    PENDING = "pending"  # an attempt is due, or waits for its time
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # every attempt of the schedule failed
    HELD = "held"  # the endpoint is switched off; a replay sends it


class WebhookEndpoint(Identified, Timestamped, WorkspaceScoped, Base):
    """An address of the customer, what it wants to hear, and how it has answered."""

    __tablename__ = "webhook_endpoints"
    __table_args__ = (Index("ix_webhook_endpoints_workspace_id", "workspace_id"),)

    url: Mapped[str] = mapped_column(Text)
    description: Mapped[str] = mapped_column(String(200), default="", server_default="")
    event_types: Mapped[list[str]]
    # Sealed (services.webhook_signing): they must sign, so a hash would not do.
    secret_sealed: Mapped[bytes] = mapped_column(LargeBinary)
    previous_secret_sealed: Mapped[bytes | None] = mapped_column(LargeBinary)
    previous_secret_expires_at: Mapped[datetime | None]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))

    disabled_at: Mapped[datetime | None]
    disabled_reason: Mapped[WebhookDisabledReason | None] = mapped_column(
        state_type(WebhookDisabledReason, "disabled_reason")
    )
    # The run of failures that goes on; null once an attempt succeeds.
    failing_since: Mapped[datetime | None]
    last_failed_at: Mapped[datetime | None]
    last_succeeded_at: Mapped[datetime | None]
    # It asked for a pause (Retry-After); nothing is sent before.
    throttled_until: Mapped[datetime | None]
    # Whoever waited longest is served first.
    last_claimed_at: Mapped[datetime | None]


class WebhookEvent(Identified, Timestamped, WorkspaceScoped, Base):
    """The outbox: one row per event, written by the transaction that it tells of."""

    __tablename__ = "webhook_events"
    __table_args__ = (
        UniqueConstraint("workspace_id", "once_key"),
        Index("ix_webhook_events_waiting", "id", postgresql_where="fanned_out_at IS NULL"),
        Index("ix_webhook_events_created_at", "created_at"),
    )

    event_type: Mapped[WebhookEventType] = mapped_column(state_type(WebhookEventType, "event_type"))
    data: Mapped[dict[str, Any]]
    # Set where the same thing must not be told twice; null repeats freely.
    once_key: Mapped[str | None] = mapped_column(String(120))
    # The only receiver of a ping; null means every endpoint that wants the type.
    endpoint_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("webhook_endpoints.id", ondelete="CASCADE")
    )
    fanned_out_at: Mapped[datetime | None]


_PENDING = "state = 'pending'"


class WebhookDelivery(Identified, Timestamped, WorkspaceScoped, Base):
    """One event on its way to one endpoint."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        UniqueConstraint("endpoint_id", "event_id"),
        Index(
            "ix_webhook_deliveries_due",
            "endpoint_id",
            "next_attempt_at",
            postgresql_where=_PENDING,
        ),
        Index("ix_webhook_deliveries_event_id", "event_id"),
    )

    endpoint_id: Mapped[UUID] = mapped_column(
        ForeignKey("webhook_endpoints.id", ondelete="CASCADE")
    )
    event_id: Mapped[UUID] = mapped_column(ForeignKey("webhook_events.id", ondelete="CASCADE"))
    state: Mapped[WebhookDeliveryState] = mapped_column(state_type(WebhookDeliveryState, "state"))
    # How far it is in the schedule of attempts; a replay starts again at none.
    schedule_position: Mapped[int] = mapped_column(default=0, server_default="0")
    # Attempts in all; numbers are never used twice.
    attempt_count: Mapped[int] = mapped_column(default=0, server_default="0")
    next_attempt_at: Mapped[datetime]
    lease_token: Mapped[int | None] = mapped_column(BigInteger)
    lease_expires_at: Mapped[datetime | None]
    last_status: Mapped[int | None]
    last_error: Mapped[str | None] = mapped_column(Text)
    finished_at: Mapped[datetime | None]


class WebhookAttempt(Identified, WorkspaceScoped, Base):
    """One request to an endpoint: written before it is sent, completed by its answer."""

    __tablename__ = "webhook_attempts"
    __table_args__ = (UniqueConstraint("delivery_id", "number"),)

    delivery_id: Mapped[UUID] = mapped_column(
        ForeignKey("webhook_deliveries.id", ondelete="CASCADE")
    )
    number: Mapped[int]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    latency_ms: Mapped[int | None]
    status: Mapped[int | None]
    error: Mapped[str | None] = mapped_column(Text)
    # The first kilobyte of the answer, as text.
    answer: Mapped[str | None] = mapped_column(Text)


class WebhookVariantEnd(WorkspaceScoped, Base):
    """A variant that ended and waits to be told of, bundled with others of its batch."""

    __tablename__ = "webhook_variant_ends"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    batch_id: Mapped[UUID] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), index=True)
    job_id: Mapped[UUID] = mapped_column(ForeignKey("render_jobs.id", ondelete="CASCADE"))
