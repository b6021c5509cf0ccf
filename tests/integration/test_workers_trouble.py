"""Refused renders, full disks, stores and databases that are away: what a worker does then."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import func, select, text, update

from app.db import Database
from app.errors import StorageError
from app.models import RenderJob, Usage
from app.storage import LocalStorage, Storage
from engine.types import GenerationFailure, GenerationRequest
from tests.disks import small_disk
from tests.engines import NullEngine
from tests.rendering import (
    WAIT_S,
    Run,
    prompts,
    released,
    start_counts,
    states,
    wait_for,
    wait_for_states,
)


def test_a_refused_render_fails_alone_with_its_reason(
    database: Database,
    run: Run,
    enqueue: Callable[..., list[UUID]],
    read_job: Callable[[UUID], RenderJob],
) -> None:
    refusal = GenerationFailure(
        request_id="", code="invalid_request", message="No such thing.", is_retryable=False
    )
    job_ids = enqueue(["a", "bad", "c"])
    run(NullEngine(failures={"bad": refusal}))
    wait_for_states(database, {"succeeded": 2, "failed": 1})
    job = read_job(job_ids[1])
    assert (job.error_code, job.error_message) == ("invalid_request", "No such thing.")


def test_an_engine_that_breaks_off_costs_a_try_and_no_job(
    database: Database, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    engine = NullEngine(failures={"bad": RuntimeError("device lost")})
    enqueue(["a", "bad", "c"])
    run(engine)
    wait_for_states(database, {"succeeded": 1, "retryable": 2})
    with database.system_scope() as session:
        errors = set(session.scalars(select(RenderJob.error_message)).all())
        session.execute(update(RenderJob).values(scheduled_at=func.now()))
    assert errors == {None, "The engine broke off: RuntimeError: device lost"}
    engine.failures.clear()
    wait_for_states(database, {"succeeded": 3})


def test_jobs_that_do_not_fit_together_are_tried_one_by_one(
    database: Database,
    run: Run,
    enqueue: Callable[..., list[UUID]],
    read_job: Callable[[UUID], RenderJob],
) -> None:
    too_big = GenerationFailure(
        request_id="", code="out_of_memory", message="cuda ran out of memory.", is_retryable=True
    )
    engine = NullEngine()
    claims: list[int] = []
    generate = engine.generate

    def count_claims(requests: list[GenerationRequest], **options: object) -> Iterator[object]:
        claims.append(len(requests))
        engine.failures = {"big": too_big} if len(requests) > 1 else {}
        return generate(requests, **options)  # type: ignore[arg-type]

    engine.generate = count_claims  # type: ignore[method-assign, assignment]
    job_ids = enqueue(["a", "big one", "big two", "d"])
    run(engine)
    wait_for_states(database, {"succeeded": 4})
    assert claims == [4, 1, 1]
    assert read_job(job_ids[1]).start_count == 1, "the start with the group was not charged"


def test_a_worker_without_weights_hands_its_jobs_back_and_waits(
    database: Database, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    broken = GenerationFailure(
        request_id="", code="checkpoint_error", message="/weights: is missing.", is_retryable=False
    )
    engine = NullEngine(failures={"a": broken})
    enqueue(prompts(3))
    run(engine)
    wait_for(lambda: released(database) >= 3)
    assert "failed" not in states(database)
    engine.failures.clear()
    wait_for_states(database, {"succeeded": 3})
    assert start_counts(database) == {1}


def test_a_full_disk_pauses_the_work_and_fails_none_of_it(
    database: Database,
    run: Run,
    enqueue: Callable[..., list[UUID]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    enqueue(prompts(6))
    engine = NullEngine(step_s=0.01)
    with small_disk(tmp_path, size_bytes=96 * 1024) as root:
        ballast = root / "ballast"
        ballast.write_bytes(os.urandom(64 * 1024))
        run(engine, store=LocalStorage(root, reserve_bytes=0))
        wait_for(lambda: "no work is taken" in caplog.text)
        wait_for(lambda: "running" not in states(database))
        rendered = len(engine.rendered)
        time.sleep(1.0)
        assert len(engine.rendered) == rendered, "no work is wasted while the disk is full"
        assert f"No space left in {root}" in caplog.text
        assert set(states(database)) <= {"succeeded", "queued", "running"}
        ballast.unlink()
        wait_for_states(database, {"succeeded": 6})
        assert start_counts(database) == {1}, "what was handed back was not charged"


def test_a_store_that_does_not_answer_for_a_moment_costs_no_second_render(
    database: Database,
    storage: Storage,
    run: Run,
    enqueue: Callable[..., list[UUID]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workers.finishing.STORE_AGAIN_AFTER_S", (0.05, 0.05))
    failures = iter([True, False, True] + [False] * 20)

    class Flaky(LocalStorage):
        def put_file(self, key: str, path: Path, *, media_type: str) -> None:
            if next(failures):
                raise StorageError("503 Slow Down")
            super().put_file(key, path, media_type=media_type)

    assert isinstance(storage, LocalStorage)
    engine = NullEngine()
    enqueue(prompts(3))
    run(engine, store=Flaky(storage._root))
    wait_for_states(database, {"succeeded": 3})
    assert len(engine.rendered) == 3


def test_a_store_that_stays_away_pauses_the_work(
    database: Database,
    storage: Storage,
    run: Run,
    enqueue: Callable[..., list[UUID]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("workers.finishing.STORE_AGAIN_AFTER_S", (0.05,))
    is_away = threading.Event()
    is_away.set()

    class Away(LocalStorage):
        def check_writable(self) -> None:
            if is_away.is_set() and "no work is taken" in caplog.text:
                raise StorageError("The store is away.")

        def put_file(self, key: str, path: Path, *, media_type: str) -> None:
            if is_away.is_set():
                raise StorageError("The store is away.")
            super().put_file(key, path, media_type=media_type)

    assert isinstance(storage, LocalStorage)
    engine = NullEngine(step_s=0.01)
    enqueue(prompts(5))
    run(engine, store=Away(storage._root))
    wait_for_states(database, {"queued": 5})
    assert start_counts(database) == {0}
    is_away.clear()
    wait_for_states(database, {"succeeded": 5})


def test_lost_connections_to_postgres_lose_no_finished_render(
    database: Database, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    enqueue(prompts(12))
    engine = NullEngine(step_s=0.01)
    run(engine)
    engine.is_busy.wait(WAIT_S)
    ended, deadline = 0, time.monotonic() + WAIT_S
    while ended < 5 and time.monotonic() < deadline:
        with database.system_scope() as session:
            ended += session.scalar(
                text(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname ="
                    " current_database() AND usename = current_user AND pid <> pg_backend_pid()"
                )
            )
        time.sleep(0.05)
    assert ended >= 5
    wait_for_states(database, {"succeeded": 12})
    assert sorted(engine.rendered) == sorted(prompts(12)), "nothing was rendered twice"
    with database.system_scope() as session:
        assert session.scalar(select(func.count()).select_from(Usage)) == 12
