"""Which waiting group of jobs a worker should take next."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

# A batch that has waited this long for a worker goes before work that suits the worker better.
PATIENCE_S = 60.0

# A single is claimed alone; any other job only with its group, and never while a member of the
# group is leased, so that no two workers hold parts of one group.
_WAITING = """
    job.state IN ('queued', 'retryable')
    AND job.scheduled_at <= now()
    AND CASE WHEN job.is_single THEN job.id::text ELSE job.group_key END <> ALL (:excluded)
    AND (job.is_single OR NOT EXISTS (
        SELECT FROM render_jobs leased
        WHERE leased.group_key = job.group_key
            AND leased.state = 'running' AND NOT leased.is_single
    ))
"""

# One index probe per live batch, and one per live batch and held key: the cost does not grow
# with the number of waiting jobs. Paused batches and abandoned drafts are not looked at.
_RANK = f"""
WITH claimable AS (
    SELECT id, workspace_id, coalesce(last_claimed_at, launched_at, created_at) AS served_at
    FROM batches
    WHERE completed_at IS NULL
        AND (
            state IN ('expanding', 'running')
            OR state = 'previewing' AND id IN (
                SELECT batch_id FROM render_jobs
                WHERE purpose = 'preview' AND state IN ('queued', 'retryable')
            )
        )
),
busy AS (
    SELECT workspace_id, sum(shared_units) AS units
    FROM render_jobs WHERE state = 'running'
    GROUP BY workspace_id
),
candidates AS (
    SELECT claimable.*, head.*, false AS is_held
    FROM claimable
    CROSS JOIN LATERAL (
        SELECT job.id AS job_id, priority, scheduled_at, group_key, affinity_key, is_single
        FROM render_jobs job
        WHERE job.batch_id = claimable.id AND {_WAITING}
        ORDER BY priority, scheduled_at, group_key
        LIMIT 1
    ) head
    UNION ALL
    SELECT claimable.*, head.*, true
    FROM claimable
    CROSS JOIN unnest(CAST(:held AS text[])) AS held (key)
    CROSS JOIN LATERAL (
        SELECT job.id AS job_id, priority, scheduled_at, group_key, affinity_key, is_single
        FROM render_jobs job
        WHERE job.batch_id = claimable.id AND job.affinity_key = held.key AND {_WAITING}
        ORDER BY scheduled_at
        LIMIT 1
    ) head
),
ranked AS (
    SELECT *,
        now() - greatest(served_at, scheduled_at) > make_interval(secs => :patience_s)
            AS is_overdue
    FROM candidates
)
SELECT id AS batch_id, job_id, group_key, affinity_key, is_single
FROM ranked LEFT JOIN busy USING (workspace_id)
ORDER BY
    -- Previews first: somebody is looking at the screen.
    priority,
    -- Then batches that no worker has served for long, so that affinity starves nobody.
    is_overdue DESC,
    -- Then what the worker has in its caches already.
    (is_held AND NOT is_overdue) DESC,
    -- Then the workspace with the least work running, so that a large one starves nobody.
    coalesce(busy.units, 0),
    CASE WHEN is_overdue THEN served_at ELSE scheduled_at END,
    is_held DESC,
    job_id
LIMIT :limit
"""  # noqa: S608  (constants of this file alone)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """The first job of a group that may be claimed (or of none, when it is retried alone)."""

    batch_id: UUID
    job_id: UUID
    group_key: str
    affinity_key: str
    is_single: bool

    @property
    def unit_key(self) -> str:
        """What is claimed as a whole: the group, or the one job."""
        return str(self.job_id) if self.is_single else self.group_key


def rank_candidates(
    session: Session,
    *,
    held_affinity: Sequence[str] = (),
    excluded: Collection[str] = (),
    limit: int = 8,
    patience_s: float = PATIENCE_S,
) -> list[Candidate]:
    """The best candidates, best first, without those whose unit key is excluded."""
    rows = session.execute(
        text(_RANK),
        {
            "held": list(held_affinity),
            "excluded": list(excluded),
            "patience_s": patience_s,
            "limit": limit,
        },
    )
    return [Candidate(**row._mapping) for row in rows]
