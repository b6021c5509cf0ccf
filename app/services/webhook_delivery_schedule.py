"""When an attempt is made and when an endpoint is given up: the rules alone, without a database.

The ten attempts are those of Standard Webhooks 1.0.0, section "Deliverability and reliability".
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from app.models import WebhookEventType

# Seconds before each attempt, counted from the one before: about three days in all.
RETRY_DELAYS_S: Final = (
    0.0,
    5.0,
    5 * 60.0,
    30 * 60.0,
    2 * 3_600.0,
    5 * 3_600.0,
    10 * 3_600.0,
    14 * 3_600.0,
    20 * 3_600.0,
    24 * 3_600.0,
)
MAX_ATTEMPTS: Final = len(RETRY_DELAYS_S)
# Each delay is drawn from 90 % to 110 % of it, so that what failed together is not sent together.
JITTER: Final = 0.1
# An endpoint that is overwhelmed gets at least a minute; a pause that it asks for counts up to an
# hour, so that no answer can stop its messages for days.
THROTTLED: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
MIN_THROTTLE_S: Final = 60.0
MAX_RETRY_AFTER_S: Final = 3_600.0

# An endpoint is switched off when every attempt has failed for so long. Days without any attempt
# do not count: a run of failures ends after such a gap.
DISABLE_AFTER: Final = timedelta(days=5)
FAILURE_GAP: Final = timedelta(days=2)


def max_attempts(event_type: WebhookEventType) -> int:
    """A ping is a question of now, so it is asked once."""
    return 1 if event_type is WebhookEventType.ENDPOINT_PING else MAX_ATTEMPTS


def next_delay_s(failed_attempts: int, *, retry_after_s: float = 0.0) -> float:
    """Seconds until the next attempt, after so many have failed (1 to MAX_ATTEMPTS - 1)."""
    delay_s = RETRY_DELAYS_S[failed_attempts] * random.uniform(1 - JITTER, 1 + JITTER)
    return max(delay_s, retry_after_s)


def retry_after_s(status: int, headers: Mapping[str, str], *, now: datetime) -> float:
    """The pause that an answer asks for, in seconds, within our bounds; 0 when it asks for none."""
    asked_s = _read_retry_after(headers.get("retry-after", ""), now)
    least_s = MIN_THROTTLE_S if status in THROTTLED else 0.0
    return max(least_s, min(asked_s, MAX_RETRY_AFTER_S))


def failing_since(
    *, since: datetime | None, last_failed_at: datetime | None, now: datetime
) -> datetime:
    """When the run of failures began that a failure at `now` belongs to."""
    if since is None or last_failed_at is None or now - last_failed_at > FAILURE_GAP:
        return now
    return since


def _read_retry_after(value: str, now: datetime) -> float:
    """Seconds or a date (RFC 9110, section 10.2.3); what cannot be read asks for nothing."""
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
