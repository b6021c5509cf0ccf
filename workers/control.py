"""The control loop: schedules, expansion, announcements, rescue of lost jobs, counters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.config import WorkerSettings
from app.db import Database
from app.queues import Doorbell, Queue
from app.services import (
    completion,
    counters,
    dispatch,
    draft_states,
    expanding,
    leases,
    render_states,
)
from app.services.dispatch import GroupHint
from app.storage import Storage
from workers import scheduling
from workers.loop import DATABASE_AWAY, Loop

logger = logging.getLogger(__name__)


class ControlLoop(Loop):
    """Any number of these may run: each duty is done by one of them at a time."""

    def __init__(
        self, database: Database, doorbell: Doorbell, storage: Storage, *, settings: WorkerSettings
    ) -> None:
        super().__init__(name="control", poll_s=min(settings.poll_s, settings.reap_s))
        self._database = database
        self._doorbell = doorbell
        self._storage = storage
        self._reap_s = settings.reap_s
        self._draft_bytes = settings.draft_gigabytes * 1e9
        self._reap_at = 0.0
        self._announced: frozenset[GroupHint] = frozenset()

    def turn(self) -> bool:
        """Do all duties; True when one of them has more to do. One that fails keeps no other."""
        duties: dict[str, Callable[[], bool]] = {
            "schedules": partial(scheduling.run_schedules, self._database)
        }
        duties |= {
            f"expand {batch_id}": partial(self._expand, batch_id)
            for batch_id in self._list_expanding()
        }
        if time.monotonic() >= self._reap_at:
            duties |= {
                "rescue": self._rescue,
                "sweep states": self._sweep_states,
                "sweep drafts": self._sweep_drafts,
            }
            self._reap_at = time.monotonic() + self._reap_s
        duties |= {"sweep": self._sweep, "announce": self._announce, "roll up": self._roll_up}
        has_more = False
        for name, duty in duties.items():
            has_more |= self._attempt(name, duty)
        return has_more

    def _attempt(self, name: str, duty: Callable[[], bool]) -> bool:
        try:
            return duty()
        except DATABASE_AWAY:
            raise
        except Exception:
            logger.exception("control: %s failed", name)
            return False

    def _list_expanding(self) -> list[UUID]:
        with self._database.system_scope() as session:
            return expanding.list_expanding(session)

    def _expand(self, batch_id: UUID) -> bool:
        with self._database.system_scope() as session:
            return expanding.expand_chunk(session, batch_id)

    def _rescue(self) -> bool:
        with self._alone("rescue") as session:
            rescued = 0
            if session is not None:
                rescued = leases.rescue_dead(session) + leases.rescue_expired(session)
        if rescued:
            logger.warning("took %d job(s) from workers that are lost or hang", rescued)
        return False

    def _sweep(self) -> bool:
        with self._alone("sweep") as session:
            if session is None:
                return False
            completion.complete_finished(session)
            return completion.sweep_stopped(session) >= completion.SWEEP_SIZE

    def _sweep_states(self) -> bool:
        with self._alone("sweep states") as session:
            swept = render_states.sweep(session, self._storage) if session else 0
        return swept >= render_states.SWEEP_SIZE

    def _sweep_drafts(self) -> bool:
        with self._alone("sweep drafts") as session:
            if session is None:
                return False
            swept = draft_states.sweep(session, self._storage, limit_bytes=self._draft_bytes)
        return swept >= draft_states.SWEEP_SIZE

    def _announce(self) -> bool:
        """Ring once for each group that newly waits: without listeners no calls pile up."""
        with self._alone("announce") as session:
            if session is None:
                return False
            opened = dispatch.open_due_jobs(session)
            hints = frozenset(dispatch.pending_hints(session))
        for hint in hints - self._announced:
            self._doorbell.ring(Queue.RENDER, hint=hint.affinity_key)
        self._announced = hints
        return opened >= dispatch.OPEN_SIZE

    def _roll_up(self) -> bool:
        with self._alone("roll up") as session:
            rolled_up = counters.roll_up(session) if session else 0
        return rolled_up >= counters.ROLL_UP_SIZE

    @contextmanager
    def _alone(self, duty: str) -> Iterator[Session | None]:
        """A transaction that nobody else does this duty in, or None while somebody does."""
        with self._database.system_scope() as session:
            is_free = session.scalar(
                text("SELECT pg_try_advisory_xact_lock(hashtextextended(:duty, 0))"),
                {"duty": f"adloom control: {duty}"},
            )
            yield session if is_free else None
