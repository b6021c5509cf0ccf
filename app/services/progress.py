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
    Batch,
    BatchState,
    JobPurpose,
    JobState,
    Quote,
    RenderJob,
    WorkPhase,
)
from app.services.counters import count_jobs
from app.services.in_flight import InFlight, measure
from app.services.pace import measure_pace
from app.services.scoping import get_in_workspace
from app.services.setbacks import Setback, count_returned, find_silent

# Denoising needs no word: it is what people take rendering for.
PHASE_WORDS = {
    WorkPhase.CHECKING: "checking quality",
    WorkPhase.FINISHING: "finishing the files",
    WorkPhase.LOADING: "loading the model",
}
MOVING_STATES = (BatchState.EXPANDING, BatchState.RUNNING)
UNSUCCESSFUL_STATES = (JobState.FAILED, JobState.QUARANTINED)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """`counts` are of final renders; `done` of them have ended, `failed` without a result.

    `in_flight` is how much of the running ones is done, in renders, and `phase` what is being done
    with them. `rate_per_s` and `eta_s` are None as long as too little has been rendered to tell.
    `setback` tells of lost workers.
    """

    state: BatchState
    counts: dict[JobState, int]
    total: int
    done: int
    failed: int
    in_flight: float
    phase: WorkPhase | None
    cost_micros: int
    quote: Quote
    rate_per_s: float | None
    eta_s: float | None
    started_at: datetime | None
    ended_at: datetime | None
    setback: Setback

    @property
    def phase_words(self) -> str:
        """What is done with what is in hand, if it is not plain rendering."""
        return PHASE_WORDS.get(self.phase, "") if self.phase is not None else ""


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
    rate = measure_pace(session, batch_id, flight) if batch.state in MOVING_STATES else None
    # A render that has just ended is still in its worker's last report.
    in_flight = min(flight.renders, running)
    return Progress(
        state=batch.state,
        counts=counts.by_state,
        total=batch.variant_count,
        done=done,
        failed=sum(counts.by_state.get(state, 0) for state in UNSUCCESSFUL_STATES),
        in_flight=in_flight,
        phase=flight.phase,
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
