"""How far running renders are: written by their workers once a second, read by the batch's page."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import BigInteger, Uuid, case, delete, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from app.models import Batch, JobPurpose, WorkerProgress

# A worker that is alive repeats itself with each heartbeat; older words are those of a lost one.
STALE_AFTER_S = 90.0
FORGET_AFTER_S = 3_600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class InHand:
    """The jobs that a worker holds under one lease, and their denoising steps.

    `job_ids` are those of them that its engine works on, or just did.
    """

    batch_id: UUID
    purpose: JobPurpose
    lease_token: int
    job_count: int
    steps_done: int
    steps_planned: int
    job_ids: tuple[UUID, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """Denoising steps of the jobs that one lease holds; a shared step counts for each of them."""

    done: int
    planned: int
    job_count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class InFlight:
    """What is done of running renders, in renders, and since when the first worker is at it."""

    renders: float = 0.0
    since: datetime | None = None


def report(session: Session, *, worker: str, in_hand: InHand | None) -> None:
    """Note what the worker has in hand, or that it has nothing; one statement either way."""
    if in_hand is None:
        session.execute(delete(WorkerProgress).where(WorkerProgress.worker == worker))
        return
    columns = {
        "purpose": literal(in_hand.purpose.value),
        "lease_token": literal(in_hand.lease_token, BigInteger),
        "job_count": literal(in_hand.job_count),
        "steps_done": literal(in_hand.steps_done),
        "steps_planned": literal(in_hand.steps_planned),
        "in_hand": literal(list(in_hand.job_ids), ARRAY(Uuid)),
    }
    # From the batch's row, so that a batch that was deleted is no error.
    found = select(literal(worker), Batch.workspace_id, Batch.id, *columns.values()).where(
        Batch.id == in_hand.batch_id
    )
    statement = upsert(WorkerProgress).from_select(
        ["worker", "workspace_id", "batch_id", *columns], found
    )
    new = statement.excluded
    is_same_lease = WorkerProgress.lease_token == new.lease_token
    started_at = case((is_same_lease, WorkerProgress.started_at), else_=func.now())
    session.execute(
        statement.on_conflict_do_update(
            index_elements=[WorkerProgress.worker],
            set_={name: new[name] for name in ("workspace_id", "batch_id", *columns)}
            | {"updated_at": func.now(), "started_at": started_at},
        )
    )


def forget(session: Session, tokens: Collection[int]) -> None:
    """Drop what was said under leases that were taken away."""
    session.execute(delete(WorkerProgress).where(WorkerProgress.lease_token.in_(tokens)))


def forget_lost(session: Session) -> None:
    """Drop what workers said that have not been heard of for long."""
    age = timedelta(seconds=FORGET_AFTER_S)
    session.execute(delete(WorkerProgress).where(WorkerProgress.updated_at < func.now() - age))


def find_steps(session: Session, lease_token: int) -> Steps | None:
    """How far the jobs under a lease are; None as long as their worker has not said."""
    row = session.execute(
        select(
            WorkerProgress.steps_done, WorkerProgress.steps_planned, WorkerProgress.job_count
        ).where(
            WorkerProgress.lease_token == lease_token,
            WorkerProgress.updated_at > func.now() - timedelta(seconds=STALE_AFTER_S),
        )
    ).first()
    if row is None:
        return None
    return Steps(done=row.steps_done, planned=row.steps_planned, job_count=row.job_count)


def measure(session: Session, batch_id: UUID) -> InFlight:
    """What workers have done of the batch's final renders that are not finished yet."""
    done = func.sum(
        WorkerProgress.job_count
        * WorkerProgress.steps_done
        / func.nullif(WorkerProgress.steps_planned, 0.0)
    )
    row = session.execute(
        select(done.label("renders"), func.min(WorkerProgress.started_at).label("since")).where(
            WorkerProgress.batch_id == batch_id,
            WorkerProgress.purpose == JobPurpose.FINAL,
            WorkerProgress.updated_at > func.now() - timedelta(seconds=STALE_AFTER_S),
        )
    ).one()
    return InFlight(renders=float(row.renders or 0.0), since=row.since)
