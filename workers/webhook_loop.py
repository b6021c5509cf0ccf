"""The webhook dispatcher: turns changes into events, events into deliveries, and sends them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.config import Config
from app.db import Database
from app.errors import InvalidInput
from app.services import (
    outbox,
    outbox_batches,
    outbox_variants,
    webhook_claiming,
    webhook_delivery,
)
from app.services.safe_http import RequestError, SafeClient
from app.services.safe_http_addresses import check_url
from app.services.webhook_claiming import DueDelivery
from app.services.webhook_delivery import AttemptEnd
from app.services.webhook_signing import signed_headers
from workers.loop import DATABASE_AWAY, Loop
from workers.transactions import commit_patiently

logger = logging.getLogger(__name__)

Clock = Callable[[Session], datetime]

POLL_S = 1.0
# Requests at a time, and how many of them may wait for endpoints that have failed before.
MAX_SENDING = 16
MAX_SENDING_FAILING = 8
PURGE_EVERY = timedelta(hours=1)
USER_AGENT = "Adloom-Webhooks/1"


def database_clock(session: Session) -> datetime:
    """The time by the database, which all dispatchers share."""
    now: datetime = session.scalars(select(func.clock_timestamp())).one()
    return now


class WebhookLoop(Loop):
    """Any number of these may run: every event and every attempt is taken by one of them."""

    def __init__(
        self,
        database: Database,
        config: Config,
        *,
        client: SafeClient | None = None,
        clock: Clock = database_clock,
    ) -> None:
        super().__init__(name="webhooks", poll_s=POLL_S)
        self._database = database
        self._networks = config.webhook_allowed_networks
        self._client = client or SafeClient(allowed_networks=self._networks)
        self._clock = clock
        self._lock = threading.Lock()
        self._sending: dict[threading.Thread, DueDelivery] = {}
        self._purge_at: datetime | None = None

    def turn(self) -> bool:
        """Do all duties; True when one of them has more to do. One that fails keeps no other."""
        has_more = False
        for duty in (self._announce, self._bundle, self._fan_out, self._dispatch, self._purge):
            try:
                has_more |= duty()
            except DATABASE_AWAY:
                raise
            except Exception:
                logger.exception("webhooks: %s failed", duty.__name__)
        return has_more

    def join(self, timeout_s: float) -> bool:
        """Wait for the loop and for what is being sent; the leases of the rest run out."""
        deadline = time.monotonic() + timeout_s
        is_done = super().join(timeout_s)
        with self._lock:
            threads = list(self._sending)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            is_done &= not thread.is_alive()
        return is_done

    def _announce(self) -> bool:
        with self._database.system_scope() as session:
            outbox_batches.announce_progress(session)
        return False

    def _bundle(self) -> bool:
        with self._database.system_scope() as session:
            return outbox_variants.bundle(session) >= outbox_variants.TAKE_SIZE

    def _fan_out(self) -> bool:
        with self._database.system_scope() as session:
            return outbox.fan_out(session, now=self._clock(session)) >= outbox.FAN_OUT_SIZE

    def _dispatch(self) -> bool:
        """Send what is due in threads of their own; each of them wakes the loop when it ends."""
        with self._lock:
            failing = sum(due.is_failing for due in self._sending.values())
            slots = MAX_SENDING - len(self._sending)
        if slots <= 0 or self.is_stopping:
            return False
        with self._database.system_scope() as session:
            claimed = webhook_claiming.claim(
                session,
                now=self._clock(session),
                slots=slots,
                slots_for_failing=min(slots, MAX_SENDING_FAILING - failing),
            )
        for due in claimed:
            # Not kept alive at the end of the process: a lease that stays behind runs out.
            thread = threading.Thread(
                target=self._deliver, args=(due,), name=f"webhook {due.message_id}", daemon=True
            )
            with self._lock:
                self._sending[thread] = due
            thread.start()
        return False

    def _purge(self) -> bool:
        with self._database.system_scope() as session:
            now = self._clock(session)
            if self._purge_at is not None and now < self._purge_at:
                return False
            has_more = outbox.purge(session, now=now) >= outbox.PURGE_SIZE
        self._purge_at = None if has_more else now + PURGE_EVERY
        return has_more

    def _deliver(self, due: DueDelivery) -> None:
        try:
            end = self._send(due)
            commit_patiently(
                self._database,
                lambda session: webhook_delivery.finish(
                    session, due, end, now=self._clock(session)
                ),
                is_stopping=lambda: self.is_stopping,
            )
        except Exception:
            logger.exception("webhooks: %s was not recorded; its lease runs out", due.message_id)
        finally:
            with self._lock:
                self._sending.pop(threading.current_thread(), None)
            self.wake()

    def _send(self, due: DueDelivery) -> AttemptEnd:
        if due.unreadable is not None:
            return AttemptEnd(error=due.unreadable)
        headers = signed_headers(
            due.secrets, message_id=due.message_id, sent_at=due.started_at, body=due.body
        )
        headers |= {"content-type": "application/json", "user-agent": USER_AGENT}
        start = time.monotonic()
        try:
            target = check_url(due.url, allowed_networks=self._networks)
            answer = self._client.post(target, headers=headers, body=due.body)
        except (InvalidInput, RequestError) as error:
            return AttemptEnd(error=str(error), latency_ms=_since_ms(start))
        return AttemptEnd(
            status=answer.status,
            error=_complaint(answer.status),
            headers=tuple(answer.headers.items()),
            # Postgres keeps no NUL in a text.
            answer=answer.body.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}"),
            latency_ms=_since_ms(start),
        )


def _complaint(status: int) -> str | None:
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return f"Answered {status}: redirects are not followed. Enter the final address."
    return f"Answered {status}; 2xx means received."


def _since_ms(start: float) -> int:
    return round((time.monotonic() - start) * 1_000)
