"""Counts and spend of batches: small changes appended by whoever moves jobs, rolled up here.

Counting the jobs of a large batch, or one counter row that every worker must lock, would both
grow with the batch; changes are appended without waiting for anybody.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import func, literal_column, select, text, union_all
from sqlalchemy.orm import Session

from app.models import BatchCounter, BatchDelta, JobPurpose, JobState

ROLL_UP_SIZE = 20_000

# One statement, so that a reader sees each change exactly once: as a delta or in its counter.
_ROLL_UP = """
WITH taken AS (
    DELETE FROM batch_deltas
    WHERE id IN (
        SELECT id FROM batch_deltas ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
    )
    RETURNING workspace_id, batch_id, purpose, state, count, cost_micros
),
added AS (
    INSERT INTO batch_counters AS counter
        (workspace_id, batch_id, purpose, state, count, cost_micros)
    SELECT workspace_id, batch_id, purpose, state, sum(count), sum(cost_micros)
    FROM taken
    GROUP BY workspace_id, batch_id, purpose, state
    -- Two that roll up at once take the counters in the same order.
    ORDER BY batch_id, purpose, state
    ON CONFLICT (batch_id, purpose, state) DO UPDATE SET
        count = counter.count + excluded.count,
        cost_micros = counter.cost_micros + excluded.cost_micros
)
SELECT count(*) FROM taken
"""


@dataclass(frozen=True, kw_only=True)
class BatchCounts:
    """How many jobs of one purpose are in each state, and what they cost in all."""

    by_state: dict[JobState, int] = field(default_factory=dict)
    cost_micros: int = 0


def roll_up(session: Session, *, limit: int = ROLL_UP_SIZE) -> int:
    """Add appended changes to the counters; returns how many (call again while it is `limit`)."""
    return session.scalar(text(_ROLL_UP), {"limit": limit}) or 0


def count_jobs(
    session: Session, batch_id: UUID, *, purpose: JobPurpose = JobPurpose.FINAL
) -> BatchCounts:
    """The counts of a batch as of now, changes that are not rolled up yet included."""
    columns = ("state", "count", "cost_micros")
    parts = union_all(
        *(
            select(*(table.c[name] for name in columns)).where(
                table.c.batch_id == batch_id, table.c.purpose == purpose.value
            )
            for table in (BatchCounter.__table__, BatchDelta.__table__)
        )
    ).subquery()
    rows = session.execute(
        select(
            parts.c.state,
            func.sum(parts.c.count).label("number"),
            func.sum(parts.c.cost_micros).label("cost_micros"),
        ).group_by(literal_column("state"))
    ).all()
    return BatchCounts(
        by_state={JobState(row.state): int(row.number) for row in rows if row.number},
        cost_micros=int(sum(row.cost_micros for row in rows)),
    )
