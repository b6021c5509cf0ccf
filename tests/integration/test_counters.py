"""Counters agree with the jobs at any moment, rolled up or not."""

from __future__ import annotations

from sqlalchemy import func, select

from app.db import Database
from app.models import Batch, BatchCounter, BatchDelta, JobPurpose, JobState, RenderJob
from app.services import counters, leases
from app.services.leases import NewUsage
from tests.factories import make_artifact_files, make_jobs


def counted(database: Database, batch: Batch) -> dict[JobState, int]:
    with database.system_scope() as session:
        rows = session.execute(
            select(RenderJob.state, func.count())
            .where(RenderJob.batch_id == batch.id, RenderJob.purpose == JobPurpose.FINAL)
            .group_by(RenderJob.state)
        )
        return {row[0]: row[1] for row in rows}


def shown(database: Database, batch: Batch) -> dict[JobState, int]:
    with database.system_scope() as session:
        return counters.count_jobs(session, batch.id).by_state


def roll_up(database: Database, *, limit: int = 1_000) -> int:
    with database.system_scope() as session:
        return counters.roll_up(session, limit=limit)


def test_counters_equal_the_jobs_after_every_step(
    database: Database, batch: Batch, foreign_batch: Batch
) -> None:
    with database.system_scope() as session:
        ids = make_jobs(session, batch, ["a", "b", "c", "d"])
        make_jobs(session, batch, ["p"], purpose=JobPurpose.PREVIEW)
        make_jobs(session, foreign_batch, ["x", "y"])
    assert shown(database, batch) == counted(database, batch) == {JobState.QUEUED: 4}
    roll_up(database)
    assert shown(database, batch) == counted(database, batch)

    with database.system_scope() as session:
        leases.claim(session, worker="worker-1")  # the preview goes first
        group = None
        while group is None or group.jobs[0].job_id not in ids:
            group = leases.claim(session, worker="worker-1")
    assert shown(database, batch) == counted(database, batch) == {JobState.RUNNING: 4}
    with database.system_scope() as session:
        leases.finish_succeeded(
            session,
            job_id=ids[0],
            token=group.token,
            artifact=make_artifact_files(),
            usage=NewUsage(units=1, render_s=1),
        )
        leases.finish_failed(
            session, job_id=ids[1], token=group.token, code="x", message="x", is_retryable=True
        )
        leases.finish_failed(
            session, job_id=ids[2], token=group.token, code="x", message="x", is_retryable=False
        )
        leases.release(session, token=group.token)
    expected = {
        JobState.SUCCEEDED: 1,
        JobState.RETRYABLE: 1,
        JobState.FAILED: 1,
        JobState.QUEUED: 1,
    }
    assert shown(database, batch) == counted(database, batch) == expected
    roll_up(database)
    assert shown(database, batch) == expected
    with database.system_scope() as session:
        assert session.scalar(select(func.count()).select_from(BatchDelta)) == 0
        assert session.scalar(select(func.min(BatchCounter.count))) == 0


def test_rolling_up_goes_in_steps(database: Database, batch: Batch) -> None:
    with database.system_scope() as session:
        for number in range(5):
            make_jobs(session, batch, [f"prompt {number}"])
    assert [roll_up(database, limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert shown(database, batch) == {JobState.QUEUED: 5}
