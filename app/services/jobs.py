"""The only writer of a render job's state: jobs are made and moved here, with all that goes along.

A move takes the counters of the batch and the attempt of the job with it, in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.orm import Session

from app.models import (
    CLAIMABLE_STATES,
    FINAL_STATES,
    LIVE_STATES,
    TRANSITIONS,
    JobPurpose,
    JobState,
    RenderJob,
    Usage,
)
from app.models.base import new_id
from app.services.carried_reviews import carry_reviews
from app.services.copying import copy_rows
from app.services.job_records import (
    Outcome,
    close_attempts,
    count_moves,
    count_new,
    open_attempts,
)
from app.services.outbox_variants import TOLD_STATES, note_ends, note_reused

PREVIEW_PRIORITY = 0
NORMAL_PRIORITY = 10

MOVED_COLUMNS = (
    RenderJob.id,
    RenderJob.batch_id,
    RenderJob.workspace_id,
    RenderJob.purpose,
    RenderJob.lease_token,
    RenderJob.lease_worker,
    RenderJob.start_count,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewJob:
    """A job to be made; the fields are columns of RenderJob.

    With an artifact that exists already it is made as succeeded, free of charge.
    """

    id: UUID = field(default_factory=new_id)
    workspace_id: UUID
    batch_id: UUID
    variant_id: UUID
    purpose: JobPurpose
    priority: int = NORMAL_PRIORITY
    affinity_key: str
    group_key: str
    plan_order: int
    work_units: float
    shared_units: float
    fork_steps: Mapping[str, int] = field(default_factory=dict)
    artifact_id: UUID | None = None

    @property
    def state(self) -> JobState:
        return JobState.QUEUED if self.artifact_id is None else JobState.SUCCEEDED


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedJob:
    """A job that has just changed its state; the lease and the count are those of now."""

    id: UUID
    batch_id: UUID
    workspace_id: UUID
    purpose: JobPurpose
    lease_token: int | None
    lease_worker: str | None
    start_count: int
    was: JobState


_NEW_COLUMNS = tuple(item.name for item in fields(NewJob))
_new_row = attrgetter(*_NEW_COLUMNS)
_FORK_STEPS_AT = _NEW_COLUMNS.index("fork_steps")
_json = json.JSONEncoder(ensure_ascii=False).encode
_USAGE_COLUMNS = (
    "id",
    "workspace_id",
    "batch_id",
    "job_id",
    "units",
    "cost_micros",
    "render_s",
    "is_reused",
)


def insert_jobs(session: Session, jobs: Sequence[NewJob]) -> None:
    """Make a few jobs that have to be rendered; works under row-level security."""
    if jobs:
        rows = [
            dict(zip(_NEW_COLUMNS, _new_row(job), strict=True)) | {"state": JobState.QUEUED}
            for job in jobs
        ]
        session.execute(insert(RenderJob), rows)
        count_new(session, jobs)


def copy_jobs(session: Session, jobs: Sequence[NewJob]) -> None:
    """Make many jobs by COPY, which Postgres offers to `adloom_system` alone."""
    now = session.scalar(select(func.now()))
    copy_rows(
        session,
        "render_jobs",
        (*_NEW_COLUMNS, "state", "finished_at"),
        ((*_copied(job), job.state.value, now if job.artifact_id else None) for job in jobs),
    )
    copy_rows(
        session,
        "usage",
        _USAGE_COLUMNS,
        (
            (new_id(), job.workspace_id, job.batch_id, job.id, 0.0, 0, 0.0, True)
            for job in jobs
            if job.artifact_id
        ),
    )
    count_new(session, jobs)
    reused = [job.id for job in jobs if job.artifact_id]
    carry_reviews(session, reused)
    note_reused(session, reused)


def transition(
    session: Session,
    condition: ColumnElement[bool],
    *,
    to: JobState,
    sources: Collection[JobState] | None = None,
    changes: Mapping[str, Any] | None = None,
    outcome: Outcome | None = None,
    limit: int | None = None,
) -> list[MovedJob]:
    """Move the jobs that meet the condition and may go to this state; returns those that went.

    `sources` narrows the states that they may come from. Rows are locked in the order of their
    ids, so that two moves never wait for each other. All of it is one statement: one round trip
    for a job that ends, however much is recorded with it.
    """
    sources = _sources(to) if sources is None else set(sources) & _sources(to)
    outcome = outcome or Outcome()
    chosen = (
        select(RenderJob.id, RenderJob.state.label("was"))
        .where(RenderJob.state.in_(sources), condition)
        .order_by(RenderJob.id)
        .limit(limit)
        .with_for_update(of=RenderJob)
        .cte("chosen")
    )
    values = _values_on_entry(to, outcome) | dict(changes or {})
    moved = (
        update(RenderJob)
        .where(RenderJob.id == chosen.c.id)
        .values(state=to, **values)
        .returning(*MOVED_COLUMNS, chosen.c.was)
        .cte("moved")
    )
    recorded = [count_moves(moved, to, outcome).cte("counted")]
    if to is JobState.RUNNING:
        recorded.append(open_attempts(moved).cte("opened"))
    elif JobState.RUNNING in sources:
        recorded.append(close_attempts(moved, to, outcome).cte("closed"))
    if to in TOLD_STATES:
        recorded.append(note_ends(moved).cte("told"))
    rows = session.execute(select(moved).add_cte(*recorded))
    return [MovedJob(**row._mapping) for row in rows]


def succeed_by_reuse(session: Session, artifact_ids: Mapping[UUID, UUID]) -> list[MovedJob]:
    """Let waiting jobs (by id) succeed with artifacts that exist already, free of charge."""
    moved: list[MovedJob] = []
    jobs_by_artifact: dict[UUID, list[UUID]] = {}
    for job_id, artifact_id in artifact_ids.items():
        jobs_by_artifact.setdefault(artifact_id, []).append(job_id)
    for artifact_id, job_ids in jobs_by_artifact.items():
        moved += transition(
            session,
            RenderJob.id.in_(job_ids),
            to=JobState.SUCCEEDED,
            sources=CLAIMABLE_STATES,
            changes={"artifact_id": artifact_id},
        )
    if moved:
        session.execute(insert(Usage), [_free_usage(job) for job in moved])
        carry_reviews(session, [job.id for job in moved])
    return moved


def _copied(job: NewJob) -> list[Any]:
    """The values of _NEW_COLUMNS as COPY takes them."""
    values = list(_new_row(job))
    values[_FORK_STEPS_AT] = _json(job.fork_steps)
    return values


def _sources(to: JobState) -> set[JobState]:
    return {state for state, targets in TRANSITIONS.items() if to in targets}


def _values_on_entry(to: JobState, outcome: Outcome) -> dict[str, Any]:
    values: dict[str, Any] = {
        "error_code": outcome.error_code,
        "error_message": outcome.error_message,
        "finished_at": func.now() if to in FINAL_STATES else None,
    }
    if to is not JobState.RUNNING:
        lease = ("lease_token", "lease_worker", "lease_expires_at", "deadline_at")
        values |= dict.fromkeys(lease)
    return values


def _free_usage(job: MovedJob) -> dict[str, Any]:
    return {
        "workspace_id": job.workspace_id,
        "batch_id": job.batch_id,
        "job_id": job.id,
        "units": 0.0,
        "cost_micros": 0,
        "render_s": 0.0,
        "is_reused": True,
    }


def is_live() -> ColumnElement[bool]:
    """The condition that a job may still change by itself."""
    return RenderJob.state.in_(LIVE_STATES)
