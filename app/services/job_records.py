"""What is written down with every job that is made or moved: counters of its batch, its attempts.

Moves are a common table expression with the columns that `jobs.transition` returns, so that the
records become part of its one statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import (
    CTE,
    BigInteger,
    Insert,
    String,
    Update,
    cast,
    func,
    insert,
    literal,
    select,
    union_all,
    update,
)
from sqlalchemy.orm import Session

from app.models import Attempt, BatchDelta, JobPurpose, JobState


class CountedJob(Protocol):
    """What a counter needs of a job."""

    @property
    def workspace_id(self) -> UUID: ...

    @property
    def batch_id(self) -> UUID: ...

    @property
    def purpose(self) -> JobPurpose: ...

    @property
    def state(self) -> JobState: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a try ended: why it gave nothing, or what it costs the batch."""

    error_code: str | None = None
    error_message: str | None = None
    cost_micros: int = 0


def count_new(session: Session, jobs: Sequence[CountedJob]) -> None:
    """Add jobs that were just made to the counters of their batches."""
    if jobs:
        counts = Counter((job.batch_id, job.purpose, job.state) for job in jobs)
        workspaces = {job.batch_id: job.workspace_id for job in jobs}
        session.execute(
            insert(BatchDelta),
            [_delta(workspaces[key[0]], key, number) for key, number in counts.items()],
        )


def count_moves(moved: CTE, to: JobState, outcome: Outcome) -> Insert:
    """One change per batch, purpose and state: fewer of the old, more of the new."""
    key = (moved.c.workspace_id, moved.c.batch_id, cast(moved.c.purpose, String))
    left = select(*key, cast(moved.c.was, String), -func.count(), literal(0, BigInteger))
    entered = select(
        *key, literal(to.value), func.count(), literal(outcome.cost_micros, BigInteger)
    )
    changes = union_all(left.group_by(*key, moved.c.was), entered.group_by(*key))
    columns = ("workspace_id", "batch_id", "purpose", "state", "count", "cost_micros")
    return insert(BatchDelta).from_select(columns, changes)


def open_attempts(moved: CTE) -> Insert:
    """An attempt for each job that was just claimed."""
    columns = ("id", "workspace_id", "job_id", "lease_token", "worker", "number")
    attempts = select(
        func.gen_random_uuid(),
        moved.c.workspace_id,
        moved.c.id,
        moved.c.lease_token,
        moved.c.lease_worker,
        moved.c.start_count,
    )
    return insert(Attempt).from_select(columns, attempts)


def close_attempts(moved: CTE, to: JobState, outcome: Outcome) -> Update:
    """The end of the attempts of jobs that are not running any more."""
    return (
        update(Attempt)
        .where(
            Attempt.job_id == moved.c.id,
            moved.c.was == JobState.RUNNING,
            Attempt.outcome.is_(None),
        )
        .values(
            outcome=to.value,
            finished_at=func.now(),
            error_code=outcome.error_code,
            error_message=outcome.error_message,
        )
    )


def _delta(
    workspace_id: UUID, key: tuple[UUID, JobPurpose, JobState], count: int
) -> dict[str, Any]:
    batch_id, purpose, state = key
    return {
        "workspace_id": workspace_id,
        "batch_id": batch_id,
        "purpose": purpose.value,
        "state": state.value,
        "count": count,
        "cost_micros": 0,
    }
