"""How fast a batch renders: its last renders and those in hand, without the time it stood still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Select, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from app.models import Attempt, Batch, JobPurpose, RenderJob
from app.services.in_flight import InFlight

# The pace is that of the last so many renders: several groups, for each of which one waits.
PACE_SAMPLE = 200
# Less work, or a shorter time, says nothing yet.
MIN_PACE_RENDERS = 0.05
MIN_PACE_S = 0.5
# Shorter breaks are those between two groups.
MIN_BREAK_S = 5.0


@dataclass(frozen=True, slots=True)
class _Span:
    """Renders of one lease, from its start until the last of them ended."""

    start: datetime
    end: datetime


def measure_pace(session: Session, batch_id: UUID, flight: InFlight) -> float | None:
    """Renders per second: the last that ended and what is done of those in flight; None: too few.

    Measured until now, so that the pace falls when nothing ends any more. Left out is when the
    batch stood still: nothing of it was in hand (it was paused, or no worker ran), and workers were
    not at other batches of the workspace either, for which it has to wait again. What was reused
    took no time.
    """
    now = session.scalars(select(func.now())).one()
    leases = session.execute(_latest_leases(batch_id)).all()
    spans = [_Span(row.started_at, row.ended_at) for row in leases]
    if flight.since is not None:
        spans.append(_Span(flight.since, now))
    done = sum(row.number for row in leases) + flight.renders
    if done < MIN_PACE_RENDERS or not spans:
        return None
    seconds = (now - min(span.start for span in spans)).total_seconds() - flight.overdue_s
    for start, end in _breaks(spans, now):
        if not _was_busy_elsewhere(session, batch_id, start, end):
            seconds -= (end - start).total_seconds()
    return done / seconds if seconds >= MIN_PACE_S else None


def _latest_leases(batch_id: UUID) -> Select[datetime, datetime, int]:
    """The leases under which the last renders ended, with how many of them each."""
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
    later = aliased(Attempt)
    is_last = ~exists().where(later.job_id == Attempt.job_id, later.number > Attempt.number)
    return (
        select(
            func.min(Attempt.started_at).label("started_at"),
            func.max(func.coalesce(Attempt.finished_at, func.now())).label("ended_at"),
            func.count().label("number"),
        )
        .join(latest, latest.c.id == Attempt.job_id)
        .where(is_last)
        .group_by(Attempt.lease_token)
    )


def _breaks(spans: Sequence[_Span], now: datetime) -> list[tuple[datetime, datetime]]:
    """The times of some length at which none of the spans goes on."""
    found: list[tuple[datetime, datetime]] = []
    ordered = sorted(spans, key=lambda span: span.start)
    end = ordered[0].end
    for span in [*ordered[1:], _Span(now, now)]:
        if (span.start - end).total_seconds() >= MIN_BREAK_S:
            found.append((end, span.start))
        end = max(end, span.end)
    return found


def _was_busy_elsewhere(session: Session, batch_id: UUID, start: datetime, end: datetime) -> bool:
    """Whether renders of other batches of the workspace ended in this time."""
    others = (
        select(Batch.id)
        .join(RenderJob, RenderJob.batch_id == Batch.id)
        .where(
            Batch.id != batch_id,
            Batch.launched_at < end,
            or_(Batch.completed_at.is_(None), Batch.completed_at > start),
            RenderJob.finished_at > start,
            RenderJob.finished_at <= end,
            RenderJob.start_count > 0,
        )
        .limit(1)
    )
    return session.scalar(others) is not None
