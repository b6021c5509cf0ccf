"""What may be rendered now: opens jobs whose time has come and says which groups wait."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.models import Batch, BatchState, JobState, RenderJob
from app.services.jobs import transition
from app.services.ranking import rank_candidates

OPEN_SIZE = 5_000
# As many as there may be idle workers worth waking with a hint of their own.
MAX_HINTS = 16


@dataclass(frozen=True, kw_only=True)
class GroupHint:
    """A group that waits, named by what a worker may have in its caches."""

    batch_id: UUID
    group_key: str
    affinity_key: str


def open_due_jobs(session: Session, *, limit: int = OPEN_SIZE) -> int:
    """Queue scheduled jobs whose time has come; returns how many (again while it is `limit`)."""
    stopped = select(Batch.id).where(
        Batch.id == RenderJob.batch_id,
        Batch.state.in_((BatchState.PAUSED, BatchState.CANCELLED, BatchState.FAILED)),
    )
    opened = transition(
        session,
        (RenderJob.scheduled_at <= func.now()) & ~stopped.exists(),
        to=JobState.QUEUED,
        sources=(JobState.SCHEDULED,),
        limit=limit,
    )
    return len(opened)


def pending_hints(session: Session, *, limit: int = MAX_HINTS) -> list[GroupHint]:
    """Groups that wait for a worker, the most urgent first; one for each live batch."""
    return [
        GroupHint(
            batch_id=candidate.batch_id,
            group_key=candidate.group_key,
            affinity_key=candidate.affinity_key,
        )
        for candidate in rank_candidates(session, limit=limit)
    ]
