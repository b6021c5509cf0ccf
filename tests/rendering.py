"""Render workers in tests: short settings, and what can be asked about their jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import func, select, text

from app.config import WorkerSettings
from app.db import Database
from app.models import Attempt, RenderJob

if TYPE_CHECKING:
    from workers.render_worker import RenderWorker

WAIT_S = 20.0
SETTINGS_OF_TESTS = WorkerSettings(lease_s=1.5, poll_s=0.05, pause_s=0.2)

# Starts a worker with an engine; `store` and `settings` may be others than usual.
Run = Callable[..., "RenderWorker"]


def states(database: Database) -> dict[str, int]:
    with database.system_scope() as session:
        rows = session.execute(select(RenderJob.state, func.count()).group_by(RenderJob.state))
        return {state.value: number for state, number in rows}


def wait_for(condition: Callable[[], bool], *, timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def wait_for_states(database: Database, expected: dict[str, int]) -> None:
    deadline = time.monotonic() + WAIT_S
    while (found := states(database)) != expected:
        assert time.monotonic() < deadline, f"{found} instead of {expected}"
        time.sleep(0.02)


def start_counts(database: Database) -> set[int]:
    with database.system_scope() as session:
        return set(session.scalars(select(RenderJob.start_count)).all())


def released(database: Database) -> int:
    """Attempts that ended with the job handed back."""
    with database.system_scope() as session:
        query = select(func.count()).select_from(Attempt).where(Attempt.outcome == "queued")
        return session.scalar(query) or 0


def many_steps(database: Database, number: int) -> None:
    with database.system_scope() as session:
        change = {"change": f'{{"num_inference_steps": {number}}}'}
        session.execute(
            text("UPDATE variants SET settings = settings || CAST(:change AS jsonb)"), change
        )


def prompts(number: int) -> list[str]:
    return [f"a sneaker, number {index}" for index in range(number)]
