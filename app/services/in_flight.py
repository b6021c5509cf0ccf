"""How far running renders are: written by their workers once a second, read by the batch's page."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    Uuid,
    case,
    delete,
    func,
    literal,
    null,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from app.models import Batch, JobPurpose, WorkerProgress, WorkPhase

# A worker that is alive repeats itself with each heartbeat; older words are those of a lost one.
STALE_AFTER_S = 90.0
FORGET_AFTER_S = 3_600.0
# What is left of a group as long as it has not ended.
ALMOST_DONE = 0.97
AFTER_STEPS = (WorkPhase.CHECKING, WorkPhase.FINISHING)


@dataclass(frozen=True, kw_only=True, slots=True)
class InHand:
    """The jobs that a worker holds under one lease, and their denoising steps.

    `group_count` is with how many it began, `rest_s` how many seconds they are likely to take after
    their last step (None: not known yet); `job_ids` are those that its engine works on, or just
    did.
    """

    batch_id: UUID
    purpose: JobPurpose
    lease_token: int
    job_count: int
    group_count: int
    steps_done: int
    steps_planned: int
    job_ids: tuple[UUID, ...] = ()
    phase: WorkPhase = WorkPhase.RENDERING
    rest_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """Denoising steps of the jobs that one lease holds; a shared step counts for each of them."""

    done: int
    planned: int
    job_count: int
    phase: WorkPhase


@dataclass(frozen=True, kw_only=True, slots=True)
class InFlight:
    """What is done of running renders, in renders, and since when the first worker is at it.

    `phase` is the first, by their order, that one of the workers is in; `overdue_s` for how long
    all of them have been at the end of what they are in longer than foreseen, which says nothing of
    their pace.
    """

    renders: float = 0.0
    since: datetime | None = None
    overdue_s: float = 0.0
    phase: WorkPhase | None = None


def report(session: Session, *, worker: str, in_hand: InHand | None) -> None:
    """Note what the worker has in hand, or that it has nothing; one statement either way."""
    if in_hand is None:
        session.execute(delete(WorkerProgress).where(WorkerProgress.worker == worker))
        return
    columns = {
        "purpose": literal(in_hand.purpose.value),
        "lease_token": literal(in_hand.lease_token, BigInteger),
        "job_count": literal(in_hand.job_count),
        "group_count": literal(in_hand.group_count),
        "phase": literal(in_hand.phase.value),
        "rest_s": literal(in_hand.rest_s, Double),
        "steps_done": literal(in_hand.steps_done),
        "steps_planned": literal(in_hand.steps_planned),
        "in_hand": literal(list(in_hand.job_ids), ARRAY(Uuid)),
    }
    # From the batch's row, so that a batch that was deleted is no error.
    steps_done_at = func.now() if in_hand.phase in AFTER_STEPS else null()
    found = select(
        literal(worker), Batch.workspace_id, Batch.id, steps_done_at, *columns.values()
    ).where(Batch.id == in_hand.batch_id)
    statement = upsert(WorkerProgress).from_select(
        ["worker", "workspace_id", "batch_id", "steps_done_at", *columns], found
    )
    new = statement.excluded
    is_same_lease = WorkerProgress.lease_token == new.lease_token
    moments = {
        "updated_at": func.now(),
        "started_at": case((is_same_lease, WorkerProgress.started_at), else_=func.now()),
        # The first moment counts, whatever follows the steps.
        "steps_done_at": case(
            (new.steps_done_at.is_(None), null()),
            (is_same_lease, func.coalesce(WorkerProgress.steps_done_at, new.steps_done_at)),
            else_=new.steps_done_at,
        ),
    }
    session.execute(
        statement.on_conflict_do_update(
            index_elements=[WorkerProgress.worker],
            set_={name: new[name] for name in ("workspace_id", "batch_id", *columns)} | moments,
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
    row = session.scalars(
        select(WorkerProgress).where(WorkerProgress.lease_token == lease_token, _is_fresh())
    ).first()
    if row is None:
        return None
    return Steps(
        done=row.steps_done, planned=row.steps_planned, job_count=row.job_count, phase=row.phase
    )


def measure(session: Session, batch_id: UUID) -> InFlight:
    """What workers have done of the batch's final renders that are not finished yet."""
    rows = session.execute(
        select(WorkerProgress, func.now().label("now")).where(
            WorkerProgress.batch_id == batch_id,
            WorkerProgress.purpose == JobPurpose.FINAL,
            _is_fresh(),
        )
    ).all()
    if not rows:
        return InFlight()
    phases = {row.WorkerProgress.phase for row in rows}
    shares = [_share(row.WorkerProgress, row.now) for row in rows]
    return InFlight(
        renders=sum(share.renders for share in shares),
        since=min(row.WorkerProgress.started_at for row in rows),
        overdue_s=min(share.overdue_s for share in shares),
        phase=next(phase for phase in WorkPhase if phase in phases),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Share:
    renders: float
    overdue_s: float = 0.0


def _share(worker: WorkerProgress, now: datetime) -> _Share:
    """What a worker has done of the jobs that it holds still, by the time that all of them take.

    Steps alone would make a worker look done while it decodes and checks: the pace would fall from
    then on, and the time left grow.
    """
    finished = worker.group_count - worker.job_count
    done_steps = worker.job_count * worker.steps_done / max(1, worker.steps_planned)
    if worker.rest_s is None:
        return _Share(renders=0.0)
    elapsed_s = (now - worker.started_at).total_seconds()
    stepped = (finished + done_steps) / worker.group_count
    if worker.steps_done_at is None:
        steps_s = elapsed_s / stepped if stepped else 0.0
    else:
        steps_s = (worker.steps_done_at - worker.started_at).total_seconds()
    planned_s = steps_s + worker.rest_s
    if not planned_s:
        return _Share(renders=0.0)
    share = elapsed_s / planned_s
    # Beyond twice of what was foreseen something may be wrong, and the pace says so.
    overdue_s = min(max(0.0, elapsed_s - planned_s), planned_s)
    renders = min(share, ALMOST_DONE) * worker.group_count - finished
    return _Share(renders=min(max(0.0, renders), worker.job_count), overdue_s=overdue_s)


def _is_fresh() -> ColumnElement[bool]:
    return WorkerProgress.updated_at > func.now() - timedelta(seconds=STALE_AFTER_S)
