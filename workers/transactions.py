"""Writes that must not be lost because Postgres is away for a moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from sqlalchemy.orm import Session

from app.db import Database
from workers.loop import DATABASE_AWAY

logger = logging.getLogger(__name__)

FIRST_WAIT_S = 0.2
MAX_WAIT_S = 2.0
# Tries go on for so long once the worker shuts down; then the lease runs out by itself.
LAST_TRIES_S = 4.0

T = TypeVar("T")


def commit_patiently(
    database: Database, work: Callable[[Session], T], *, is_stopping: Callable[[], bool]
) -> T:
    """Run `work` in a system transaction, again while the connection fails.

    A commit whose answer was lost is repeated too, so `work` must be guarded by a lease token.
    """
    give_up_at: float | None = None
    for attempt in count():
        try:
            with database.system_scope() as session:
                return work(session)
        except DATABASE_AWAY as error:
            if give_up_at is None and is_stopping():
                give_up_at = time.monotonic() + LAST_TRIES_S
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise
            if attempt == 0:
                reason = str(error).partition("\n")[0]
                logger.warning("Postgres does not answer, trying again (%s)", reason)
            time.sleep(min(MAX_WAIT_S, FIRST_WAIT_S * 2 ** min(attempt, 10)))
    raise AssertionError("unreachable")
