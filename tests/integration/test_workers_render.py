"""A render worker on a real database and store, with a stand-in for the GPU."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import av
import pytest
from sqlalchemy import func, select, text, update

from app.config import Config, WorkerSettings
from app.db import Database
from app.errors import StorageError
from app.models import Artifact, Attempt, Batch, BatchState, JobPurpose, JobState, RenderJob, Usage
from app.services import leases
from app.storage import LocalStorage, Storage
from engine.types import GenerationFailure, GenerationRequest, RenderSettings
from engine.units import clip_units
from tests.disks import small_disk
from tests.engines import SIZE, NullEngine
from tests.factories import SETTINGS, make_jobs
from workers import heartbeat
from workers.render_worker import RenderWorker

WAIT_S = 20.0
SETTINGS_OF_TESTS = WorkerSettings(lease_s=1.5, poll_s=0.05, pause_s=0.2)

Run = Callable[..., RenderWorker]


@pytest.fixture
def run(config: Config, database: Database, storage: Storage) -> Iterator[Run]:
    """Starts render workers and stops those that the test leaves running."""
    started: list[RenderWorker] = []

    def start(
        engine: NullEngine,
        *,
        store: Storage = storage,
        settings: WorkerSettings = SETTINGS_OF_TESTS,
    ) -> RenderWorker:
        worker = RenderWorker(
            replace(config, workers=settings),
            database,
            store,
            worker=f"worker-{len(started)}",
            engine_factory=lambda: engine,
        )
        worker.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.stop()
        worker.join(5.0)


@pytest.fixture
def enqueue(database: Database, batch: Batch) -> Callable[..., list[UUID]]:
    def make(*groups: list[str], purpose: JobPurpose = JobPurpose.FINAL) -> list[UUID]:
        with database.system_scope() as session:
            return make_jobs(session, batch, *groups, purpose=purpose)

    return make


def states(database: Database) -> dict[str, int]:
    with database.system_scope() as session:
        rows = session.execute(select(RenderJob.state, func.count()).group_by(RenderJob.state))
        return {state.value: number for state, number in rows}


def wait_for(condition: Callable[[], bool], *, timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def wait_for_states(database: Database, expected: dict[str, int]) -> None:
    deadline = time.monotonic() + WAIT_S
    while (found := states(database)) != expected:
        assert time.monotonic() < deadline, f"{found} instead of {expected}"
        time.sleep(0.02)


def start_counts(database: Database) -> set[int]:
    with database.system_scope() as session:
        return set(session.scalars(select(RenderJob.start_count)).all())


def released(database: Database) -> int:
    """Attempts that ended with the job handed back."""
    with database.system_scope() as session:
        query = select(func.count()).select_from(Attempt).where(Attempt.outcome == "queued")
        return session.scalar(query) or 0


def many_steps(database: Database, number: int) -> None:
    with database.system_scope() as session:
        change = {"change": f'{{"num_inference_steps": {number}}}'}
        session.execute(
            text("UPDATE variants SET settings = settings || CAST(:change AS jsonb)"), change
        )


def prompts(number: int) -> list[str]:
    return [f"a sneaker, number {index}" for index in range(number)]


def test_jobs_become_artifacts_whose_hashes_are_those_of_the_stored_files(
    database: Database, storage: Storage, run: Run, enqueue: Callable[..., list[UUID]], batch: Batch
) -> None:
    job_ids = enqueue(prompts(3))
    run(NullEngine())
    wait_for_states(database, {"succeeded": 3})
    with database.system_scope() as session:
        artifacts = session.scalars(select(Artifact)).all()
        usage = session.scalars(select(Usage)).all()
        finished = session.get_one(Batch, batch.id)
    assert len(artifacts) == 3
    assert {row.job_id for row in usage} == set(job_ids)
    units = clip_units(RenderSettings.from_dict(SETTINGS))
    assert [row.units for row in usage] == [units] * 3, "what the engine says it computed"
    for artifact in artifacts:
        with storage.open(artifact.storage_key) as stream:
            data = stream.read()
        assert hashlib.sha256(data).hexdigest() == artifact.sha256
        assert artifact.storage_key == f"{batch.workspace_id}/artifacts/{artifact.sha256}.mp4"
        assert (artifact.width, artifact.height, artifact.size_bytes) == (SIZE, SIZE, len(data))
        with storage.open(artifact.storage_key) as stream, av.open(stream) as container:
            video = list(container.decode(video=0))
        assert len(video) == artifact.num_frames == SETTINGS["num_frames"]
        assert storage.exists(artifact.poster_key)
        assert storage.exists(artifact.preview_key)
        assert artifact.provenance["forwards_computed"] == 8
    assert finished.state is BatchState.COMPLETED


def test_a_still_becomes_a_png(
    database: Database, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    enqueue(["a poster"])
    with database.system_scope() as session:
        still = '{"task": "t2i", "num_frames": 1}'
        session.execute(
            text("UPDATE variants SET settings = settings || CAST(:s AS jsonb)"), {"s": still}
        )
    run(NullEngine())
    wait_for_states(database, {"succeeded": 1})
    with database.system_scope() as session:
        artifact = session.scalars(select(Artifact)).one()
    assert artifact.media_type == "image/png"
    assert artifact.storage_key.endswith(".png")


def test_a_result_is_stored_while_the_next_one_renders_and_the_order_is_kept(
    database: Database, storage: Storage, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    overlaps: list[str] = []
    engine = NullEngine(step_s=0.02)

    class Watching(LocalStorage):
        def put_file(self, key: str, path: Path, *, media_type: str) -> None:
            before = len(engine.rendered)
            time.sleep(0.05)
            super().put_file(key, path, media_type=media_type)
            if len(engine.rendered) > before:
                overlaps.append(key)

    assert isinstance(storage, LocalStorage)
    job_ids = enqueue(prompts(8))
    run(engine, store=Watching(storage._root))
    wait_for_states(database, {"succeeded": 8})
    assert len(overlaps) >= 3
    with database.system_scope() as session:
        ended = session.scalars(select(RenderJob.id).order_by(RenderJob.finished_at)).all()
    assert list(ended) == job_ids


def test_rendering_waits_for_a_slow_store_instead_of_filling_the_memory(
    database: Database, storage: Storage, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    opened = threading.Event()

    class Closed(LocalStorage):
        def put_file(self, key: str, path: Path, *, media_type: str) -> None:
            assert opened.wait(WAIT_S)
            super().put_file(key, path, media_type=media_type)

    assert isinstance(storage, LocalStorage)
    enqueue(prompts(12))
    engine = NullEngine()
    run(engine, store=Closed(storage._root))
    time.sleep(0.7)
    assert len(engine.rendered) <= 4, "one being stored, two waiting, one in the loop's hand"
    opened.set()
    wait_for_states(database, {"succeeded": 12})


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
    ended = 0
    for _ in range(10):
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


def test_a_worker_that_lost_its_lease_drops_its_output(
    database: Database,
    run: Run,
    enqueue: Callable[..., list[UUID]],
    pass_time: Callable[..., None],
    read_job: Callable[[UUID], RenderJob],
) -> None:
    [job_id] = enqueue(["slow"])
    released_engine = threading.Event()
    slow = NullEngine(on_step=lambda _: released_engine.wait(WAIT_S) and None)
    # Its heartbeat comes too late to learn anything.
    run(slow, settings=replace(SETTINGS_OF_TESTS, lease_s=300.0))
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


def test_a_job_that_may_kill_the_process_waits_until_finished_renders_are_recorded(
    database: Database,
    storage: Storage,
    run: Run,
    enqueue: Callable[..., list[UUID]],
    read_job: Callable[[UUID], RenderJob],
) -> None:
    class Slow(LocalStorage):
        def put_file(self, key: str, path: Path, *, media_type: str) -> None:
            time.sleep(0.1)
            super().put_file(key, path, media_type=media_type)

    [first] = enqueue(["a"])
    [suspect] = enqueue(["suspect"])
    with database.system_scope() as session:
        session.execute(
            update(RenderJob)
            .where(RenderJob.id == suspect)
            .values(start_count=1, is_single=True, scheduled_at=func.now())
        )
    seen: list[JobState] = []

    def look(request: GenerationRequest) -> None:
        if request.prompt == "suspect":
            seen.append(read_job(first).state)

    assert isinstance(storage, LocalStorage)
    run(NullEngine(on_step=look), store=Slow(storage._root))
    wait_for_states(database, {"succeeded": 2})
    assert set(seen) == {JobState.SUCCEEDED}


def test_previews_render_first_and_with_few_steps(
    database: Database, run: Run, enqueue: Callable[..., list[UUID]]
) -> None:
    enqueue(prompts(2))
    enqueue(["look at this"], purpose=JobPurpose.PREVIEW)
    many_steps(database, 20)
    steps: list[tuple[str, int]] = []

    def note(request: GenerationRequest) -> None:
        steps.append((request.prompt, request.settings.num_inference_steps))

    run(NullEngine(on_step=note))
    wait_for_states(database, {"succeeded": 3})
    assert steps[:12] == [("look at this", 12)] * 12
    assert steps[12][1] == 20
