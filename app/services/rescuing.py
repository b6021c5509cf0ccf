"""Jobs of workers that are lost or hang go back in the queue, and poison among them is found.

A group that is lost goes back whole, so that its renders still share their steps. What a job
loses is a start, and only a job that may have been in the worker's hands loses one: the worker
writes down what the engine is about to work on as soon as it is told (`worker_progress.in_hand`,
a superset of the forward that was running). Where it wrote nothing down about the jobs that are
left, any of them may have ended it, and all are charged.

The last start that a job has is made alone. A job that kills its worker is in hand each time, so
it comes to that start after the others were spared or have one left as well; there it can take
none with it, and only there is a job quarantined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, func, or_, select, true
from sqlalchemy.orm import Session

from app.models import JobState, RenderJob, WorkerProgress
from app.services import in_flight, jobs
from app.services.completion import complete_if_done
from app.services.job_records import Outcome
from app.services.jobs import MovedJob
from app.services.worker_identity import WorkerIdentity, this_machine

WORKER_LOST = Outcome("worker_lost", "The worker stopped answering while it rendered this.")
HUNG = Outcome("deadline_exceeded", "The render did not end within its hard deadline.")


def rescue_expired(session: Session) -> int:
    """Take jobs from workers whose lease has run out or whose render hangs; returns how many."""
    hung = select(RenderJob.lease_token).where(
        RenderJob.state == JobState.RUNNING, RenderJob.deadline_at < func.now()
    )
    lost = or_(RenderJob.lease_expires_at < func.now(), RenderJob.lease_expires_at.is_(None))
    # A worker that hangs in one job gets to none of the others that it leased with it.
    rescued = _rescue(session, RenderJob.lease_token.in_(hung), outcome=HUNG)
    rescued += _rescue(session, lost, outcome=WORKER_LOST)
    in_flight.forget_lost(session)
    return rescued


def rescue_dead(session: Session) -> int:
    """Take jobs from workers of this machine whose process has ended; returns how many.

    Their leases need not run out first: the system says that nobody will ever renew them. Workers
    of other machines, of which nothing is known from here, are left alone.
    """
    machine = this_machine()
    if machine is None:
        return 0
    names = session.scalars(
        select(RenderJob.lease_worker)
        .where(
            RenderJob.state == JobState.RUNNING,
            RenderJob.lease_worker.endswith(f":{machine}", autoescape=True),
        )
        .distinct()
    )
    dead = [name for name in names if name is not None and _is_dead(name)]
    if not dead:
        return 0
    return _rescue(session, RenderJob.lease_worker.in_(dead), outcome=WORKER_LOST)


def is_last_start() -> ColumnElement[bool]:
    """The condition that a job has one start left at most, which it then makes alone."""
    return RenderJob.start_count >= RenderJob.max_starts - 1


def _is_dead(name: str) -> bool:
    worker = WorkerIdentity.parse(name)
    return worker is not None and worker.is_gone()


def _rescue(session: Session, condition: ColumnElement[bool], *, outcome: Outcome) -> int:
    tokens, spared = _look(session, condition)
    if not tokens:
        return 0
    is_spared = RenderJob.id.in_(spared)
    is_out = RenderJob.is_single & (RenderJob.start_count >= RenderJob.max_starts)
    moved = _move(
        session,
        condition & is_out & ~is_spared,
        to=JobState.QUARANTINED,
        outcome=Outcome(
            outcome.error_code, f"{outcome.error_message} It was the last of its tries."
        ),
    )
    back = {"scheduled_at": func.now()}
    uncharged = back | {"start_count": RenderJob.start_count - 1}
    moved += _move(session, condition & is_spared, outcome=outcome, changes=uncharged)
    # Nothing from outside makes a render hang, so nothing but the job is suspected.
    is_single = true() if outcome is HUNG else RenderJob.is_single | is_last_start()
    moved += _move(session, condition, outcome=outcome, changes=back | {"is_single": is_single})
    in_flight.forget(session, tokens)
    complete_if_done(session, {job.batch_id for job in moved})
    return len(moved)


def _move(
    session: Session,
    condition: ColumnElement[bool],
    *,
    outcome: Outcome,
    to: JobState = JobState.RETRYABLE,
    changes: Mapping[str, Any] | None = None,
) -> list[MovedJob]:
    return jobs.transition(
        session,
        condition,
        to=to,
        sources=(JobState.RUNNING,),
        changes=changes,
        outcome=outcome,
    )


def _look(session: Session, condition: ColumnElement[bool]) -> tuple[set[int], list[UUID]]:
    """The tokens that are lost, and those of their jobs that were certainly not in hand."""
    rows = session.execute(
        select(RenderJob.id, RenderJob.lease_token, WorkerProgress.in_hand)
        .outerjoin(WorkerProgress, WorkerProgress.lease_token == RenderJob.lease_token)
        .where(RenderJob.state == JobState.RUNNING, condition)
    ).all()
    by_token: dict[int, set[UUID]] = {}
    for row in rows:
        by_token.setdefault(row.lease_token, set()).add(row.id)
    in_hand = {row.lease_token: row.in_hand or () for row in rows}
    spared = [
        job_id for token, left in by_token.items() for job_id in _spared(left, in_hand[token])
    ]
    return set(by_token), spared


def _spared(left: Collection[UUID], in_hand: Iterable[UUID]) -> set[UUID]:
    suspects = set(in_hand) & set(left)
    return set(left) - suspects if suspects else set()
