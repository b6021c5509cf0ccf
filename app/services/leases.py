"""Leases on render jobs: claim a group, renew, release, finish; the one face of all of it.

All time comes from the database's clock. Every result carries the token of its lease; whoever
holds an old token changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, func, insert, select, update
from sqlalchemy.orm import Session

from app.models import (
    Artifact,
    Batch,
    BatchState,
    JobPurpose,
    JobState,
    Quote,
    RenderJob,
    Usage,
    Variant,
)
from app.models.base import new_id
from app.services import jobs
from app.services.claimed import ClaimedGroup, ClaimedJob, effective_key
from app.services.claiming import LEASE_S, claim
from app.services.completion import complete_if_done
from app.services.job_records import Outcome
from app.services.jobs import MovedJob
from app.services.rescuing import is_last_start, rescue_dead, rescue_expired

__all__ = [
    "ClaimedGroup",
    "ClaimedJob",
    "NewArtifact",
    "NewUsage",
    "Renewal",
    "claim",
    "finish_failed",
    "finish_succeeded",
    "release",
    "renew",
    "rescue_dead",
    "rescue_expired",
]

FIRST_RETRY_S = 15.0
MAX_RETRY_S = 600.0
CANCELLED_CODE = "cancelled"
STOPPED_STATES = (BatchState.CANCELLED, BatchState.FAILED)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewArtifact:
    """The files of a finished render, already stored; the fields are columns of Artifact."""

    media_type: str
    storage_key: str
    poster_key: str
    preview_key: str
    sha256: str
    size_bytes: int
    width: int
    height: int
    num_frames: int
    fps: float
    profile: str
    provenance: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class NewUsage:
    """What a render took: work units really computed, and seconds."""

    units: float
    render_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Renewal:
    """Jobs that the worker still holds; `cancelled` ones it should stop, they are part of `held`.

    Whatever it works on that is not in `held` belongs to somebody else by now.
    """

    held: frozenset[UUID]
    cancelled: frozenset[UUID]


def renew(session: Session, *, worker: str, lease_s: float = LEASE_S) -> Renewal:
    """Extend all leases of the worker; a lease that has expired is still its own until rescued."""
    rows = session.execute(
        update(RenderJob)
        .where(
            RenderJob.state == JobState.RUNNING,
            RenderJob.lease_worker == worker,
            Batch.id == RenderJob.batch_id,
        )
        .values(lease_expires_at=func.now() + timedelta(seconds=lease_s))
        .returning(RenderJob.id, Batch.state.label("batch_state")),
        execution_options={"synchronize_session": False},
    ).all()
    return Renewal(
        held=frozenset(row.id for row in rows),
        cancelled=frozenset(row.id for row in rows if row.batch_state in STOPPED_STATES),
    )


def release(
    session: Session,
    *,
    token: int,
    job_ids: Collection[UUID] | None = None,
    as_singles: bool = False,
) -> int:
    """Hand jobs back without charging the start: all of the token, or these; returns how many.

    `as_singles` has them claimed one by one, when they do not fit together.
    """
    condition = RenderJob.lease_token == token
    if job_ids is not None:
        condition &= RenderJob.id.in_(job_ids)
    return len(_hand_back(session, condition, as_singles=as_singles))


def finish_succeeded(
    session: Session, *, job_id: UUID, token: int, artifact: NewArtifact, usage: NewUsage
) -> bool:
    """Record a finished render with its artifact and its price; False when the lease is lost.

    The files must be stored already. A stale holder writes nothing and drops its output.
    """
    job = _lock_leased(session, job_id=job_id, token=token)
    if job is None:
        return False
    artifact_id = new_id()
    session.execute(
        insert(Artifact),
        [
            asdict(artifact)
            | {
                "id": artifact_id,
                "workspace_id": job.workspace_id,
                "variant_key": effective_key(job),
            }
        ],
    )
    cost_micros = _charge(job, usage)
    jobs.transition(
        session,
        RenderJob.id == job_id,
        to=JobState.SUCCEEDED,
        changes={"artifact_id": artifact_id},
        outcome=Outcome(cost_micros=cost_micros),
    )
    session.execute(
        insert(Usage),
        [
            {
                "workspace_id": job.workspace_id,
                "batch_id": job.batch_id,
                "job_id": job_id,
                "units": usage.units,
                "cost_micros": cost_micros,
                "render_s": usage.render_s,
                "is_reused": False,
            }
        ],
    )
    complete_if_done(session, [job.batch_id])
    return True


def finish_failed(
    session: Session, *, job_id: UUID, token: int, code: str, message: str, is_retryable: bool
) -> bool:
    """Record that a render gave nothing; False when the lease is lost.

    A retryable failure waits longer after each start, makes its last one alone, and ends as failed
    after it. The code "cancelled" ends the job when its batch is cancelled, and hands it back
    otherwise.
    """
    job = _lock_leased(session, job_id=job_id, token=token)
    if job is None:
        return False
    outcome = Outcome(code, message)
    this_job = RenderJob.id == job_id
    if code == CANCELLED_CODE and job.batch_state not in STOPPED_STATES:
        _hand_back(session, this_job)
        return True
    if code == CANCELLED_CODE:
        jobs.transition(session, this_job, to=JobState.CANCELLED, outcome=outcome)
    elif is_retryable and job.start_count < job.max_starts:
        wait = timedelta(seconds=_retry_wait_s(job.start_count))
        jobs.transition(
            session,
            this_job,
            to=JobState.RETRYABLE,
            changes={
                "scheduled_at": func.now() + wait,
                "is_single": RenderJob.is_single | is_last_start(),
            },
            outcome=outcome,
        )
    else:
        jobs.transition(session, this_job, to=JobState.FAILED, outcome=outcome)
    complete_if_done(session, [job.batch_id])
    return True


def _lock_leased(session: Session, *, job_id: UUID, token: int) -> Row[Any] | None:
    """The job with what its end needs, locked; None unless the token holds it."""
    rate = (
        select(Quote.rate_micros_per_unit)
        .where(Quote.batch_id == RenderJob.batch_id)
        .order_by(Quote.created_at.desc(), Quote.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    return session.execute(
        select(
            RenderJob.workspace_id,
            RenderJob.batch_id,
            RenderJob.purpose,
            RenderJob.shared_units,
            RenderJob.start_count,
            RenderJob.max_starts,
            Variant.variant_key,
            Variant.settings,
            Batch.state.label("batch_state"),
            rate.label("rate_micros"),
        )
        .join(Variant, Variant.id == RenderJob.variant_id)
        .join(Batch, Batch.id == RenderJob.batch_id)
        .where(
            RenderJob.id == job_id,
            RenderJob.lease_token == token,
            RenderJob.state == JobState.RUNNING,
        )
        .with_for_update(of=RenderJob)
    ).one_or_none()


def _hand_back(
    session: Session, condition: ColumnElement[bool], *, as_singles: bool = False
) -> list[MovedJob]:
    changes: dict[str, Any] = {
        "start_count": RenderJob.start_count - 1,
        "scheduled_at": func.now(),
    }
    if as_singles:
        changes["is_single"] = True
    return jobs.transition(
        session,
        condition,
        to=JobState.QUEUED,
        sources=(JobState.RUNNING,),
        changes=changes,
    )


def _charge(job: Row[Any], usage: NewUsage) -> int:
    """The price in micros: what was planned at most, so that the bill never tops the quote.

    Previews are free. Rounded down, so that the sum over a batch cannot exceed its quote either.
    """
    if job.purpose is JobPurpose.PREVIEW or job.rate_micros is None:
        return 0
    return int(min(usage.units, job.shared_units) * job.rate_micros)


def _retry_wait_s(start_count: int) -> float:
    return float(min(FIRST_RETRY_S * 2 ** (start_count - 1), MAX_RETRY_S))
