"""Stops a worker from taking work that it could not bring to an end."""

from __future__ import annotations

import logging
import time

from app.errors import StorageError
from app.storage import Storage

logger = logging.getLogger(__name__)

REMIND_S = 60.0


class Pause:
    """On from the start and after trouble; over when its time is up and the store takes files."""

    def __init__(self, storage: Storage, *, pause_s: float) -> None:
        self._storage = storage
        self._pause_s = pause_s
        self._is_on = True
        self._until = 0.0
        self._told_at: float | None = None

    @property
    def is_on(self) -> bool:
        return self._is_on

    def begin(self, reason: str) -> None:
        """Take nothing new for a while; what is in hand goes back uncharged."""
        self._is_on = True
        self._until = time.monotonic() + self._pause_s
        self._tell(reason)

    def is_over(self) -> bool:
        """Whether work may be taken (again); looks at the store when the pause was on."""
        if not self._is_on:
            return True
        if time.monotonic() < self._until:
            return False
        try:
            self._storage.check_writable()
        except StorageError as error:
            self.begin(error.message)
            return False
        if self._told_at is not None:
            logger.warning("taking work again")
        self._is_on = False
        self._told_at = None
        return True

    def _tell(self, reason: str) -> None:
        now = time.monotonic()
        if self._told_at is None or now - self._told_at >= REMIND_S:
            self._told_at = now
            logger.error("no work is taken, and what was taken is handed back: %s", reason)
