"""How far a batch is: counts, spend, pace and what went wrong; the cost grows with none of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.models import (
    FINAL_STATES,
    Batch,
    BatchState,
    JobPurpose,
    JobState,
    Quote,
    RenderJob,
)
from app.services.counters import count_jobs
from app.services.scoping import get_in_workspace

# The pace is that of the last so many renders.
PACE_SAMPLE = 50
MOVING_STATES = (BatchState.EXPANDING, BatchState.RUNNING)
UNSUCCESSFUL_STATES = (JobState.FAILED, JobState.QUARANTINED)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """`counts` are of final renders; `done` of them have ended, `failed` without a result.

    `rate_per_s` and `eta_s` are None as long as too little has been rendered to tell.
    """

    state: BatchState
    counts: dict[JobState, int]
    total: int
    done: int
    failed: int
    cost_micros: int
    quote: Quote
    rate_per_s: float | None
    eta_s: float | None
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class FailureSummary:
    """One reason why variants have failed, and how many."""

    message: str
    count: int


def get_progress(session: Session, actor: Actor, batch_id: UUID) -> Progress:
    """What the page of a batch shows live."""
    require(actor, Action.VIEW)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    counts = count_jobs(session, batch_id)
    done = sum(counts.by_state.get(state, 0) for state in FINAL_STATES)
    rate = _rate_per_s(session, batch_id) if batch.state in MOVING_STATES else None
    return Progress(
        state=batch.state,
        counts=counts.by_state,
        total=batch.variant_count,
        done=done,
        failed=sum(counts.by_state.get(state, 0) for state in UNSUCCESSFUL_STATES),
        cost_micros=counts.cost_micros,
        quote=binding_quote(session, batch_id),
        rate_per_s=rate,
        eta_s=(batch.variant_count - done) / rate if rate else None,
        started_at=batch.launched_at,
        ended_at=batch.completed_at,
    )


def binding_quote(session: Session, batch_id: UUID) -> Quote:
    """The last quote of a batch: the one that its bill keeps to."""
    return session.scalars(
        select(Quote)
        .where(Quote.batch_id == batch_id)
        .order_by(Quote.created_at.desc(), Quote.id.desc())
        .limit(1)
    ).one()


def list_failures(
    session: Session, actor: Actor, batch_id: UUID, *, limit: int = 5
) -> list[FailureSummary]:
    """The most frequent reasons why variants of a batch have failed."""
    require(actor, Action.VIEW)
    number = func.count().label("number")
    rows = session.execute(
        select(RenderJob.error_message, number)
        .where(
            RenderJob.batch_id == batch_id,
            RenderJob.workspace_id == actor.workspace_id,
            RenderJob.purpose == JobPurpose.FINAL,
            RenderJob.state.in_(UNSUCCESSFUL_STATES),
        )
        .group_by(RenderJob.error_message)
        .order_by(number.desc(), RenderJob.error_message)
        .limit(limit)
    )
    return [FailureSummary(message=row.error_message or "", count=row.number) for row in rows]


def _rate_per_s(session: Session, batch_id: UUID) -> float | None:
    """Ended renders per second, over the last of them; what was reused took no time."""
    latest = (
        select(RenderJob.finished_at)
        .where(
            RenderJob.batch_id == batch_id,
            RenderJob.purpose == JobPurpose.FINAL,
            RenderJob.finished_at.is_not(None),
            RenderJob.start_count > 0,
        )
        .order_by(RenderJob.finished_at.desc())
        .limit(PACE_SAMPLE)
        .subquery()
    )
    # Measured until now, not until the last end: the pace falls when nothing ends any more.
    seconds = func.extract("epoch", func.now() - func.min(latest.c.finished_at))
    row = session.execute(
        select(func.count().label("number"), seconds.label("seconds")).select_from(latest)
    ).one()
    if row.number < 2 or row.seconds <= 0:
        return None
    return float((row.number - 1) / float(row.seconds))
