"""A batch ends exactly once, however many finish its last jobs at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from app.db import Database
from app.models import Batch, BatchState, JobState, RenderJob
from app.services import completion, counters, leases
from app.services.leases import NewUsage
from tests.factories import make_artifact_files, make_jobs


@pytest.fixture
def completions(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The batches that were completed, once per completion."""
    completed: list[UUID] = []
    complete = completion._complete

    def spy(session: object, batch_id: UUID) -> bool:
        is_completed = complete(session, batch_id)  # type: ignore[arg-type]
        if is_completed:
            completed.append(batch_id)
        return is_completed

    monkeypatch.setattr(completion, "_complete", spy)
    return completed


def succeed(
    database: Database, job_id: UUID, token: int, *, pause: threading.Event | None = None
) -> bool:
    with database.system_scope() as session:
        is_done = leases.finish_succeeded(
            session,
            job_id=job_id,
            token=token,
            artifact=make_artifact_files(),
            usage=NewUsage(units=1.0, render_s=0.1),
        )
        if pause is not None:
            pause.wait(10)
        return is_done


def test_two_finishers_of_the_last_two_jobs_complete_the_batch_once(
    database: Database, batch: Batch, completions: list[UUID]
) -> None:
    with database.system_scope() as session:
        first, second = make_jobs(session, batch, ["a", "b"])
        group = leases.claim(session, worker="worker-1")
    assert group is not None
    may_commit = threading.Event()
    with ThreadPoolExecutor() as pool:
        # The first has finished and not committed, so the second cannot see that it has.
        early = pool.submit(succeed, database, first, group.token, pause=may_commit)
        wait_for_state_lock(database, batch.id)
        late = pool.submit(succeed, database, second, group.token)
        may_commit.set()
        assert early.result(20)
        assert late.result(20)
    assert completions == [batch.id]
    with database.system_scope() as session:
        assert session.get_one(Batch, batch.id).state is BatchState.COMPLETED


def wait_for_state_lock(database: Database, batch_id: UUID) -> None:
    """Return once another transaction has locked the batch."""
    for _ in range(500):
        with database.system_scope() as session:
            free = session.scalar(
                select(Batch.id)
                .where(Batch.id == batch_id)
                .with_for_update(key_share=True, skip_locked=True)
            )
        if free is None:
            return
        threading.Event().wait(0.01)
    raise AssertionError("nobody has locked the batch")


def test_many_finishers_at_once_complete_the_batch_once_and_count_right(
    database: Database, batch: Batch, completions: list[UUID]
) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, *([f"{group} {job}" for job in range(8)] for group in range(6)))

    def work(number: int) -> None:
        while True:
            with database.system_scope() as session:
                group = leases.claim(session, worker=f"worker-{number}", limit=3)
            if group is None:
                with database.system_scope() as session:
                    if session.get_one(Batch, batch.id).state is BatchState.COMPLETED:
                        return
                continue
            for job in group.jobs:
                assert succeed(database, job.job_id, group.token)
            with database.system_scope() as session:
                counters.roll_up(session, limit=7)

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, number) for number in range(6)]:
            done.result(60)
    assert completions == [batch.id]
    with database.system_scope() as session:
        counted = session.execute(
            select(RenderJob.state, func.count()).group_by(RenderJob.state)
        ).all()
        assert {row[0]: row[1] for row in counted} == {JobState.SUCCEEDED: 48}
        assert counters.count_jobs(session, batch.id).by_state == {JobState.SUCCEEDED: 48}
        assert session.scalar(select(func.max(RenderJob.start_count))) == 1
        assert completion.complete_finished(session) == 0


def test_a_batch_is_not_complete_before_all_its_jobs_exist(
    database: Database, batch: Batch, completions: list[UUID]
) -> None:
    with database.system_scope() as session:
        session.execute(update(Batch).values(state=BatchState.EXPANDING, expanded_at=None))
        [job_id] = make_jobs(session, batch, ["a"])
        group = leases.claim(session, worker="worker-1")
    assert group is not None
    succeed(database, job_id, group.token)
    with database.system_scope() as session:
        assert completion.complete_finished(session) == 0
    assert completions == []


def test_a_paused_batch_completes_with_its_last_render(
    database: Database, batch: Batch, completions: list[UUID]
) -> None:
    with database.system_scope() as session:
        [job_id] = make_jobs(session, batch, ["a"])
        group = leases.claim(session, worker="worker-1")
        session.execute(update(Batch).values(state=BatchState.PAUSED))
    assert group is not None
    succeed(database, job_id, group.token)
    assert completions == [batch.id]


def test_a_batch_that_nobody_completed_is_found_later(
    database: Database, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.system_scope() as session:
        [job_id] = make_jobs(session, batch, ["a"])
        group = leases.claim(session, worker="worker-1")
    assert group is not None
    with monkeypatch.context() as patch:
        # What happens when a job that still waits is finished by another transaction meanwhile.
        patch.setattr(completion, "_has_jobs", lambda *_: True)
        succeed(database, job_id, group.token)
    with database.system_scope() as session:
        assert session.get_one(Batch, batch.id).state is BatchState.RUNNING
    with database.system_scope() as session:
        assert completion.complete_finished(session) == 1
        assert completion.complete_finished(session) == 0
