"""How many requests a key may make: fixed windows of a minute, counted in Redis."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from redis import Redis
from redis.exceptions import RedisError

LOG = logging.getLogger("app.rate_limits")

WINDOW_S: Final = 60
TIMEOUT_S: Final = 0.5
# A Redis that does not answer is left alone for a while, so that requests do not wait for it.
QUIET_AFTER_FAILURE_S: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What is left of a window of `limit` requests; `reset_s` seconds until the next one."""

    limit: int
    remaining: int
    reset_s: int
    is_exceeded: bool


class RateLimiter:
    """Counts requests by name. Shared by threads and by all web processes.

    Without Redis nothing is counted and everything is let in: the limit protects the service, and
    its loss is no reason to refuse work.
    """

    def __init__(
        self, redis_url: str, *, limit: int, clock: Callable[[], float] = time.time
    ) -> None:
        self.limit = limit
        self._clock = clock
        self._redis = Redis.from_url(
            redis_url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
        )
        self._lock = threading.Lock()
        self._quiet_until = 0.0

    def count(self, name: str) -> Allowance:
        """Count one request under this name."""
        now = self._clock()
        window, passed_s = divmod(now, WINDOW_S)
        used = self._increment(f"adloom:rate:{name}:{int(window)}")
        return Allowance(
            limit=self.limit,
            remaining=max(self.limit - used, 0),
            reset_s=math.ceil(WINDOW_S - passed_s),
            is_exceeded=used > self.limit,
        )

    def _increment(self, key: str) -> int:
        with self._lock:
            if time.monotonic() < self._quiet_until:
                return 0
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.incr(key)
                pipeline.expire(key, 2 * WINDOW_S)
                return int(pipeline.execute()[0])
        except RedisError as error:
            with self._lock:
                self._quiet_until = time.monotonic() + QUIET_AFTER_FAILURE_S
            LOG.warning("requests are not counted, Redis does not answer: %s", error)
            return 0
