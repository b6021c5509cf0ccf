"""Keeps the leases of a render worker alive, and knows which of its jobs it should stop."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from uuid import UUID

from app.config import Config
from app.db import Database
from app.services import leases
from workers.loop import Loop

logger = logging.getLogger(__name__)

# sysexits.h: a failure that a restart may mend.
EXIT_HUNG = 75


class Heartbeat(Loop):
    """Renews on a connection of its own, so that nothing in the process can hold it up."""

    def __init__(self, config: Config, *, worker: str, is_hung: Callable[[], bool]) -> None:
        super().__init__(name="heartbeat", poll_s=config.workers.heartbeat_s)
        self._database = Database(config, pool_size=1)
        self._worker = worker
        self._lease_s = config.workers.lease_s
        self._is_hung = is_hung
        self._lock = threading.Lock()
        self._held: set[UUID] = set()
        self._cancelled: set[UUID] = set()
        self._lost: set[UUID] = set()

    def hold(self, job_ids: Iterable[UUID]) -> None:
        """Watch over jobs that were just claimed."""
        with self._lock:
            self._held.update(job_ids)

    def drop(self, job_ids: Iterable[UUID]) -> None:
        """Forget jobs that ended or were handed back."""
        gone = set(job_ids)
        with self._lock:
            self._held -= gone
            self._cancelled -= gone
            self._lost -= gone

    def is_lost(self, job_id: UUID) -> bool:
        """Whether the job belongs to somebody else by now."""
        return job_id in self._lost

    def should_cancel(self, job_id: UUID) -> bool:
        """Whether going on with the job is of no use."""
        return job_id in self._lost or job_id in self._cancelled

    def turn(self) -> bool:
        if self._is_hung():
            # Nothing can interrupt a thread that is stuck in the device; a new process can.
            logger.critical("a render hangs beyond its deadline: this process ends to be restarted")
            os._exit(EXIT_HUNG)
        with self._lock:
            before = frozenset(self._held)
        if not before:
            return False
        with self._database.system_scope() as session:
            renewal = leases.renew(session, worker=self._worker, lease_s=self._lease_s)
        with self._lock:
            # Jobs that were claimed or that ended meanwhile are judged by the next renewal.
            lost = (before & self._held) - renewal.held - self._lost
            self._lost |= lost
            self._cancelled |= renewal.cancelled & self._held
        if lost:
            logger.warning("lost the lease on %d job(s): %s", len(lost), _names(lost))
        return False

    def close(self) -> None:
        self._database.dispose()


def _names(job_ids: Iterable[UUID]) -> str:
    return ", ".join(sorted(map(str, job_ids)))
