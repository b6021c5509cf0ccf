"""A background thread that looks for work: woken by a call or by the clock, and hard to kill."""

from __future__ import annotations

import logging
import random
import threading
from abc import ABC, abstractmethod

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

logger = logging.getLogger(__name__)

# What the driver and the pool say when Postgres is away, restarts, or ends our session.
DATABASE_AWAY = (OperationalError, InterfaceError, PoolTimeoutError)
FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 15.0


class Loop(ABC):
    """Calls `turn` again and again in a thread of its own until it is stopped."""

    def __init__(self, *, name: str, poll_s: float) -> None:
        self._poll_s = poll_s
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def turn(self) -> bool:
        """Do what there is to do; True when there may be more right now."""

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Take the next turn at once. A call during a turn leads to one more turn."""
        self._woken.set()

    def stop(self) -> None:
        """Ask the thread to end after what it is doing; returns at once."""
        self._stopping.set()
        self._woken.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; False when it still runs."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def _run(self) -> None:
        while not self.is_stopping:
            self._woken.clear()
            try:
                has_more = self.turn()
            except DATABASE_AWAY as error:
                reason = str(error).partition("\n")[0]
                logger.warning("%s: Postgres does not answer (%s)", self._thread.name, reason)
                self._back_off()
            except Exception:
                logger.exception("%s: a turn failed", self._thread.name)
                self._back_off()
            else:
                self._failures = 0
                if not has_more:
                    # Spread, so that many workers do not ask at the same moment.
                    self._woken.wait(self._poll_s * random.uniform(0.75, 1.25))

    def _back_off(self) -> None:
        """Wait longer after each failure in a row; a wake-up call does not shorten it."""
        delay_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._stopping.wait(delay_s * random.uniform(0.75, 1.25))
