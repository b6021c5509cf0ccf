"""Webhook endpoints and deliveries, as the API speaks of them."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from app.api.schemas.base import Id, Input, Output, Page, PageQuery, Text, Time
from app.models import (
    WebhookDeliveryState,
    WebhookDisabledReason,
    WebhookEventType,
)
from app.models import WebhookEndpoint as WebhookEndpointRow
from app.services.webhooks import DEFAULT_TYPES, MAX_DESCRIPTION_LENGTH
from app.services.webhooks_log import DeliverySummary

MAX_URL_LENGTH = 2_000


class WebhookEndpointCreate(Input):
    url: Text = Field(min_length=1, max_length=MAX_URL_LENGTH)
    description: Text = Field(default="", max_length=MAX_DESCRIPTION_LENGTH)
    event_types: list[WebhookEventType] = Field(default=list(DEFAULT_TYPES), max_length=20)


class WebhookEndpointUpdate(Input):
    """What is to change; everything else stays."""

    url: Text | None = Field(default=None, min_length=1, max_length=MAX_URL_LENGTH)
    description: Text | None = Field(default=None, max_length=MAX_DESCRIPTION_LENGTH)
    event_types: list[WebhookEventType] | None = Field(default=None, max_length=20)
    is_enabled: bool | None = None


class WebhookEndpoint(Output):
    id: Id
    url: str
    description: str
    event_types: list[WebhookEventType]
    is_enabled: bool
    disabled_reason: WebhookDisabledReason | None
    failing_since: Time | None
    last_succeeded_at: Time | None
    created_at: Time

    @classmethod
    def of(cls, row: WebhookEndpointRow) -> Self:
        return cls(
            id=row.id,
            url=row.url,
            description=row.description,
            event_types=[WebhookEventType(item) for item in row.event_types],
            is_enabled=row.disabled_at is None,
            disabled_reason=row.disabled_reason,
            failing_since=row.failing_since,
            last_succeeded_at=row.last_succeeded_at,
            created_at=row.created_at,
        )


class WebhookEndpointList(Output):
    """All endpoints of the workspace: there are few."""

    data: list[WebhookEndpoint]


class WebhookSecret(Output):
    """An endpoint with its signing secret, which cannot be read again."""

    endpoint: WebhookEndpoint
    secret: str


class SecretRotation(Input):
    at_once: bool = Field(
        default=False, description="End the old secret now; otherwise it signs for 24 hours more."
    )


class Replay(Input):
    since: Time | None = Field(default=None, description="Only what happened since then.")


class Replayed(Output):
    replayed: int


class PingSent(Output):
    event_id: Id


class WebhookDelivery(Output):
    id: Id
    endpoint_id: Id
    event_type: WebhookEventType
    message_id: str = Field(description="The `webhook-id` that the receiver sees.")
    state: WebhookDeliveryState
    attempt_count: int
    last_status: int | None
    last_error: str | None
    created_at: Time
    next_attempt_at: Time | None

    @classmethod
    def of(cls, summary: DeliverySummary) -> Self:
        return cls(**{name: getattr(summary, name) for name in cls.model_fields})


class WebhookDeliveryPage(Page[WebhookDelivery]):
    pass


class WebhookDeliveryQuery(PageQuery):
    endpoint_id: Id | None = None
    state: WebhookDeliveryState | None = None
