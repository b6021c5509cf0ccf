"""A brake on guessing passwords: failed sign-ins counted per name."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable


class LoginThrottle:
    """Counts failed sign-ins per name over a sliding time; each web process counts for itself.

    `blocked_for` gives the seconds to wait, 0 when there is nothing to wait for.
    """

    def __init__(
        self,
        *,
        max_failures: int = 8,
        window_s: float = 300.0,
        max_names: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_failures = max_failures
        self._window_s = window_s
        self._max_names = max_names
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def blocked_for(self, name: str) -> float:
        with self._lock:
            times = self._recent(name)
            if times is None or len(times) < self._max_failures:
                return 0.0
            return times[0] + self._window_s - self._clock()

    def record_failure(self, name: str) -> None:
        with self._lock:
            times = self._recent(name)
            if times is None:
                times = self._failures[name] = deque(maxlen=self._max_failures)
            times.append(self._clock())
            self._failures.move_to_end(name)
            # The longest idle name goes first, so that memory stays bounded.
            if len(self._failures) > self._max_names:
                self._failures.popitem(last=False)

    def forget(self, name: str) -> None:
        with self._lock:
            self._failures.pop(name, None)

    def _recent(self, name: str) -> deque[float] | None:
        times = self._failures.get(name)
        if times is None:
            return None
        while times and times[0] <= self._clock() - self._window_s:
            times.popleft()
        return times
