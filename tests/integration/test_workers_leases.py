"""Lost leases, cancelled batches, stops and hanging renders, as a render worker meets them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from app.db import Database
from app.models import Artifact, Batch, BatchState, JobState, RenderJob, Usage
from app.services import leases
from app.storage import LocalStorage, Storage
from tests.engines import NullEngine
from tests.rendering import (
    SETTINGS_OF_TESTS,
    WAIT_S,
    Run,
    many_steps,
    prompts,
    start_counts,
    states,
    wait_for,
    wait_for_states,
)
from workers import heartbeat


def test_a_worker_that_lost_its_lease_drops_its_output(
    database: Database,
    run: Run,
    enqueue: Callable[..., list[UUID]],
    pass_time: Callable[..., None],
    read_job: Callable[[UUID], RenderJob],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its heartbeat learns nothing.
    monkeypatch.setattr(heartbeat.Heartbeat, "_renew", lambda _: None)
    [job_id] = enqueue(["slow"])
    released_engine = threading.Event()
    slow = NullEngine(on_step=lambda _: released_engine.wait(WAIT_S) and None)
    run(slow)
    assert slow.is_busy.wait(WAIT_S)
    pass_time(1_000)
    with database.system_scope() as session:
        assert leases.rescue_expired(session) == 1
    quick = NullEngine()
    run(quick)
    wait_for_states(database, {"succeeded": 1})
    artifact_id = read_job(job_id).artifact_id
    released_engine.set()
    wait_for(lambda: bool(slow.rendered))
    time.sleep(0.3)
    assert read_job(job_id).artifact_id == artifact_id
    with database.system_scope() as session:
        assert session.scalar(select(func.count()).select_from(Artifact)) == 1
        assert session.scalar(select(func.count()).select_from(Usage)) == 1


def test_the_heartbeat_stops_a_render_whose_lease_is_lost(
    database: Database, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    enqueue(["slow"])
    engine = NullEngine(step_s=0.05)
    many_steps(database, 200)
    run(engine)
    assert engine.is_busy.wait(WAIT_S)
    with database.system_scope() as session:
        session.execute(update(RenderJob).values(lease_worker="somebody else", lease_token=10**9))

    def is_still() -> bool:
        engine.is_busy.clear()
        return not engine.is_busy.wait(0.3)

    wait_for(is_still, timeout_s=4)
    assert engine.rendered == []
    with database.system_scope() as session:
        job = session.scalars(select(RenderJob)).one()
    assert (job.state, job.lease_worker) == (JobState.RUNNING, "somebody else")


def test_leases_of_a_long_render_are_renewed(
    database: Database, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    enqueue(prompts(2))
    engine = NullEngine(step_s=0.4)
    run(engine)
    deadline = time.monotonic() + WAIT_S
    while states(database) != {"succeeded": 2}:
        with database.system_scope() as session:
            assert leases.rescue_expired(session) == 0
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cancelled_batch_stops_after_the_step_in_hand(
    database: Database, batch: Batch, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    enqueue(prompts(10))
    engine = NullEngine(step_s=0.2)
    run(engine)
    assert engine.is_busy.wait(WAIT_S)
    with database.system_scope() as session:
        session.execute(update(Batch).values(state=BatchState.CANCELLED))
    wait_for(lambda: "running" not in states(database), timeout_s=5)
    found = states(database)
    assert found.get("cancelled", 0) >= 7
    assert len(engine.rendered) <= 3


def test_a_stopped_worker_hands_back_uncharged_what_it_did_not_render(
    database: Database, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    enqueue(prompts(6))
    engine = NullEngine(step_s=0.1)
    worker = run(engine)
    wait_for(lambda: len(engine.rendered) == 2)
    start = time.monotonic()
    worker.stop()
    assert worker.join(5.0)
    assert time.monotonic() - start < 2.0
    done = len(engine.rendered)
    assert states(database) == {"succeeded": done, "queued": 6 - done}
    with database.system_scope() as session:
        waiting = session.scalars(select(RenderJob).where(RenderJob.state == JobState.QUEUED)).all()
    assert {job.start_count for job in waiting} == {0}
    assert {job.lease_token for job in waiting} == {None}


def test_a_step_that_takes_too_long_does_not_hold_up_the_stop(
    database: Database, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    never = threading.Event()
    engine = NullEngine(on_step=lambda _: never.wait(WAIT_S) and None)
    enqueue(prompts(3))
    worker = run(engine)
    assert engine.is_busy.wait(WAIT_S)
    worker.stop()
    assert not worker.join(0.5)
    assert states(database) == {"queued": 3}
    assert start_counts(database) == {0}
    never.set()


def test_a_render_that_hangs_beyond_its_deadline_ends_the_process(
    database: Database,
    run: Run,
    enqueue: Callable[..., list[UUID]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    never = threading.Event()
    engine = NullEngine(on_step=lambda _: never.wait(WAIT_S) and None)
    enqueue(prompts(1))
    run(engine, settings=replace(SETTINGS_OF_TESTS, lease_s=0.3, job_deadline_s=0.5))
    wait_for(lambda: bool(exits))
    assert exits[0] == heartbeat.EXIT_HUNG
    with database.system_scope() as session:
        assert leases.rescue_expired(session) == 1
        [job] = session.scalars(select(RenderJob)).all()
        session.refresh(job)
        assert job.error_code == "deadline_exceeded"
    never.set()


def test_a_slow_store_is_not_taken_for_a_render_that_hangs(
    database: Database,
    storage: Storage,
    run: Run,
    enqueue: Callable[..., list[UUID]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)

    class Slow(LocalStorage):
        def put_file(self, key: str, path: Path, *, media_type: str) -> None:
            time.sleep(0.2)
            super().put_file(key, path, media_type=media_type)

    assert isinstance(storage, LocalStorage)
    enqueue(prompts(5))
    settings = replace(SETTINGS_OF_TESTS, lease_s=0.6, job_deadline_s=0.4)
    run(NullEngine(), store=Slow(storage._root), settings=settings)
    wait_for_states(database, {"succeeded": 5})
    assert exits == []
