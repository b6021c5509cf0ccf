"""How far a batch is: counts, spend, pace and what went wrong; the cost grows with none of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.models import (
    FINAL_STATES,
    Attempt,
    Batch,
    BatchState,
    JobPurpose,
    JobState,
    Quote,
    RenderJob,
)
from app.services.counters import count_jobs
from app.services.in_flight import InFlight, measure
from app.services.scoping import get_in_workspace
from app.services.setbacks import Setback, count_returned, find_silent

# The pace is that of the last so many renders.
PACE_SAMPLE = 50
# Less work, or a shorter time, says nothing yet.
MIN_PACE_RENDERS = 0.05
MIN_PACE_S = 0.5
MOVING_STATES = (BatchState.EXPANDING, BatchState.RUNNING)
UNSUCCESSFUL_STATES = (JobState.FAILED, JobState.QUARANTINED)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """`counts` are of final renders; `done` of them have ended, `failed` without a result.

    `in_flight` is how much of the running ones is done, in renders. `rate_per_s` and `eta_s` are
    None as long as too little has been rendered to tell. `setback` tells of lost workers.
    """

    state: BatchState
    counts: dict[JobState, int]
    total: int
    done: int
    failed: int
    in_flight: float
    cost_micros: int
    quote: Quote
    rate_per_s: float | None
    eta_s: float | None
    started_at: datetime | None
    ended_at: datetime | None
    setback: Setback


@dataclass(frozen=True, kw_only=True)
class FailureSummary:
    """One reason why variants have failed, and how many."""

    message: str
    count: int
    code: str = ""

    @property
    def digest(self) -> str:
        """Stands for the message in an address; `VariantFilter.error_digest` takes it."""
        return hashlib.md5(self.message.encode(), usedforsecurity=False).hexdigest()


def get_progress(session: Session, actor: Actor, batch_id: UUID) -> Progress:
    """What the page of a batch shows live."""
    require(actor, Action.VIEW)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    counts = count_jobs(session, batch_id)
    done = sum(counts.by_state.get(state, 0) for state in FINAL_STATES)
    running = counts.by_state.get(JobState.RUNNING, 0)
    flight = measure(session, batch_id) if running else InFlight()
    rate = _rate_per_s(session, batch_id, flight) if batch.state in MOVING_STATES else None
    # A render that has just ended is still in its worker's last report.
    in_flight = min(flight.renders, running)
    return Progress(
        state=batch.state,
        counts=counts.by_state,
        total=batch.variant_count,
        done=done,
        failed=sum(counts.by_state.get(state, 0) for state in UNSUCCESSFUL_STATES),
        in_flight=in_flight,
        cost_micros=counts.cost_micros,
        quote=binding_quote(session, batch_id),
        rate_per_s=rate,
        eta_s=(batch.variant_count - done - in_flight) / rate if rate else None,
        started_at=batch.launched_at,
        ended_at=batch.completed_at,
        setback=_setback(session, batch_id, counts.by_state),
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
        select(RenderJob.error_message, func.min(RenderJob.error_code).label("code"), number)
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
    return [
        FailureSummary(message=row.error_message or "", count=row.number, code=row.code or "")
        for row in rows
    ]


def _setback(session: Session, batch_id: UUID, counts: dict[JobState, int]) -> Setback:
    silent = find_silent(session, batch_id) if counts.get(JobState.RUNNING) else Setback()
    if not counts.get(JobState.RETRYABLE):
        return silent
    return replace(silent, returned=count_returned(session, batch_id))


def _rate_per_s(session: Session, batch_id: UUID, flight: InFlight) -> float | None:
    """Renders per second: the last that ended and what is done of those in flight.

    Measured from the first start among them until now, so that the pace falls when nothing ends
    any more; what was reused took no time.
    """
    latest = (
        select(RenderJob.id)
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
    last_start = (
        select(func.max(Attempt.started_at)).where(Attempt.job_id == latest.c.id).scalar_subquery()
    )
    since = func.least(func.min(last_start), flight.since)
    row = session.execute(
        select(
            func.count().label("number"),
            func.extract("epoch", func.now() - since).label("seconds"),
        ).select_from(latest)
    ).one()
    done = row.number + flight.renders
    if done < MIN_PACE_RENDERS or row.seconds is None or row.seconds < MIN_PACE_S:
        return None
    return float(done) / float(row.seconds)
