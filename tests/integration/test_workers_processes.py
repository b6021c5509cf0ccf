"""Real `celery worker` processes: woken, killed, terminated, and left without a broker."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
import redis
from sqlalchemy import func, select, update

from app.config import Config, WorkerSettings
from app.db import Database
from app.models import Artifact, Attempt, Batch, BatchState, JobState, RenderJob, Usage
from app.queues import Doorbell, Queue
from app.stack.folder import StateFolder
from app.stack.valkey import ValkeyServer
from tests.factories import make_jobs
from tests.worker_processes import WorkerProcess, WorkerProcesses, wait_until, worker_processes
from workers.render_worker import RENDER_SHARE
from workers.runtime import STOP_TIMEOUT_S

LEASE_S = 1.5


@pytest.fixture
def connected(config: Config, redis_url: str) -> Config:
    redis.Redis.from_url(redis_url).flushall()
    return replace(config, redis_url=redis_url, workers=WorkerSettings(lease_s=LEASE_S))


@pytest.fixture
def workers(connected: Config, tmp_path: Path) -> Iterator[WorkerProcesses]:
    with worker_processes(connected, tmp_path) as processes:
        yield processes


@pytest.fixture
def enqueue(database: Database, batch: Batch) -> Callable[..., list[UUID]]:
    def make(*prompts: str) -> list[UUID]:
        with database.system_scope() as session:
            # Jobs of a batch that has ended are not looked at.
            session.execute(update(Batch).values(state=BatchState.RUNNING, completed_at=None))
            return make_jobs(session, batch, prompts)

    return make


def count_states(database: Database) -> dict[str, int]:
    with database.system_scope() as session:
        rows = session.execute(select(RenderJob.state, func.count()).group_by(RenderJob.state))
        return {state.value: number for state, number in rows}


def all_succeeded(database: Database, number: int) -> Callable[[], bool]:
    return lambda: count_states(database) == {"succeeded": number}


def assert_finished_once(database: Database, number: int) -> None:
    with database.system_scope() as session:
        assert session.scalar(select(func.count()).select_from(Artifact)) == number
        assert session.scalar(select(func.count()).select_from(Usage)) == number
        assert session.scalar(select(func.count(func.distinct(Usage.job_id)))) == number
        assert session.scalars(select(Batch.state)).all() == [BatchState.COMPLETED]


def prompts(number: int) -> list[str]:
    return [f"a sneaker, number {index}" for index in range(number)]


def start_idle(workers: WorkerProcesses, *queues: str, **environment: str) -> WorkerProcess:
    """A worker that has looked once, found nothing, and listens to the broker."""
    process = workers.start(*queues, **environment)
    process.wait_for_line("ready.")
    return process


def test_the_doorbell_wakes_at_once_and_ringing_five_times_changes_nothing(
    connected: Config,
    database: Database,
    workers: WorkerProcesses,
    enqueue: Callable[..., list[UUID]],
) -> None:
    process = start_idle(workers, "render", TEST_POLL_S="600")
    doorbell = Doorbell(connected)
    job_ids = enqueue(*prompts(4))
    doorbell.ring(Queue.RENDER, times=5)
    assert wait_until(all_succeeded(database, 4)) < 10, "the next look was minutes away"
    doorbell.ring(Queue.RENDER, times=5)
    broker = redis.Redis.from_url(connected.redis_url)
    wait_until(lambda: broker.llen("render") == 0)
    assert sorted(workers.renders()) == sorted(map(str, job_ids))
    assert_finished_once(database, 4)
    assert broker.keys("celery-task-meta*") == [], "no results are kept"
    assert process.terminate() < 10
    assert process.popen.returncode == 0
    assert "Traceback" not in process.output()


def test_work_goes_on_without_a_broker_from_the_start_and_after_its_loss(
    config: Config,
    database: Database,
    tmp_path: Path,
    enqueue: Callable[..., list[UUID]],
) -> None:
    root = Path(tempfile.mkdtemp(prefix="adl-", dir="/tmp"))
    folder = StateFolder.create(root)
    valkey = ValkeyServer(folder, say=lambda _: None)
    try:
        valkey.ensure_running()
        with worker_processes(replace(config, redis_url=valkey.url), tmp_path) as workers:
            start_idle(workers, "render", TEST_STEP_S="0.02")
            enqueue(*prompts(10))
            wait_until(lambda: bool(workers.renders()))
            broker = redis.Redis.from_url(valkey.url)
            broker.flushall()
            broker.close()
            valkey.stop(immediately=True)
            wait_until(all_succeeded(database, 10))
            enqueue(*(f"{prompt} again" for prompt in prompts(3)))
            wait_until(all_succeeded(database, 13))
            assert workers.started[0].terminate() < 10, "it stops without a broker, too"

            late = workers.start("render")
            enqueue("the last one")
            wait_until(all_succeeded(database, 14))
            assert "ready." not in late.output()
    finally:
        valkey.stop(immediately=True)
        shutil.rmtree(folder.run, ignore_errors=True)
        shutil.rmtree(root, ignore_errors=True)


def test_a_killed_worker_loses_no_job_and_doubles_none(
    database: Database, workers: WorkerProcesses, enqueue: Callable[..., list[UUID]]
) -> None:
    job_ids = enqueue(*prompts(12))
    victim = workers.start("render", TEST_STEP_S="0.05")
    wait_until(lambda: len(workers.renders()) >= 4)
    victim.kill()
    assert count_states(database).get("running", 0) > 0, "it was killed in the middle"
    start_idle(workers, "render", "control")
    wait_until(all_succeeded(database, 12))
    assert_finished_once(database, 12)
    assert set(workers.renders()) == set(map(str, job_ids))
    wasted = len(workers.renders()) - 12
    assert wasted <= 3, "what waited to be stored, not what was stored"


def test_what_a_killed_worker_held_goes_to_its_successor_at_once_and_whole(
    connected: Config, database: Database, tmp_path: Path, enqueue: Callable[..., list[UUID]]
) -> None:
    patient = replace(connected, workers=WorkerSettings(lease_s=600.0))
    enqueue(*prompts(12))
    with worker_processes(patient, tmp_path) as workers:
        victim = workers.start("render", TEST_STEP_S="0.2")
        wait_until(lambda: len(workers.renders()) >= 4)
        victim.kill()
        workers.start("render")
        wait_until(all_succeeded(database, 12))
    assert_finished_once(database, 12)
    with database.system_scope() as session:
        claims = session.scalar(select(func.count(func.distinct(Attempt.lease_token))))
        starts = session.scalars(select(RenderJob.start_count)).all()
    assert claims == 2, "what was left stayed one group"
    assert sum(starts) <= 12 + 2, "only what was in hand is charged"


def test_sigterm_hands_back_uncharged_what_is_not_rendered(
    database: Database, workers: WorkerProcesses, enqueue: Callable[..., list[UUID]]
) -> None:
    enqueue(*prompts(12))
    process = workers.start("render", TEST_STEP_S="0.1")
    wait_until(lambda: len(workers.renders()) >= 2)
    assert process.terminate() < 10
    assert process.popen.returncode == 0
    done = len(workers.renders())
    assert count_states(database) == {"succeeded": done, "queued": 12 - done}
    with database.system_scope() as session:
        waiting = session.scalars(select(RenderJob).where(RenderJob.state == JobState.QUEUED)).all()
    assert {job.start_count for job in waiting} == {0}


def test_sigterm_in_a_step_longer_than_the_grace_hands_back_and_ends_well(
    database: Database, workers: WorkerProcesses, enqueue: Callable[..., list[UUID]]
) -> None:
    enqueue(*prompts(3))
    process = workers.start("render", TEST_ENDLESS_STEP="yes")
    process.wait_for_line("computing")
    assert count_states(database) == {"running": 3}
    assert process.terminate() < STOP_TIMEOUT_S + 4
    assert process.popen.returncode == 0, process.output()
    assert "terminate called" not in process.output()
    assert count_states(database) == {"queued": 3}
    with database.system_scope() as session:
        assert set(session.scalars(select(RenderJob.start_count))) == {0}


def test_sigterm_to_an_idle_worker_does_not_wait_for_the_interpreter_to_tidy_up(
    workers: WorkerProcesses,
) -> None:
    process = start_idle(workers, "render")
    process.terminate()
    assert process.popen.returncode == 0, process.output()
    assert "Warm shutdown" in process.output()
    assert "tidies up" not in process.output()


def test_sigterm_while_the_engine_is_being_made_does_not_wait_for_it(
    database: Database, workers: WorkerProcesses, enqueue: Callable[..., list[UUID]]
) -> None:
    enqueue(*prompts(3))
    process = start_idle(workers, "render", TEST_LOAD_S="600")
    assert process.terminate() < RENDER_SHARE * STOP_TIMEOUT_S, "nothing is in hand"
    assert process.popen.returncode == 0, process.output()
    assert count_states(database) == {"queued": 3}


def test_a_job_that_kills_its_worker_is_quarantined_and_the_others_finish(
    database: Database, workers: WorkerProcesses, enqueue: Callable[..., list[UUID]]
) -> None:
    job_ids = enqueue("a", "b", "poison", "d", "e")
    with database.system_scope() as session:
        session.execute(update(RenderJob).values(max_starts=2))
    deaths = 0
    while count_states(database) != {"succeeded": 4, "quarantined": 1}:
        render = workers.start("render", "control")
        wait_until(
            lambda render=render: (
                render.popen.poll() is not None
                or count_states(database) == {"succeeded": 4, "quarantined": 1}
            )
        )
        deaths += render.popen.poll() is not None
        assert deaths <= 2, "it is started no more often than it may"
    with database.system_scope() as session:
        job = session.get_one(RenderJob, job_ids[2])
    assert (job.state, job.error_code) == (JobState.QUARANTINED, "worker_lost")
    assert deaths == 2
