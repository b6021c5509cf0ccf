"""What a render worker makes of its jobs, and in which order, with a stand-in for the GPU."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import av
from sqlalchemy import func, select, text, update

from app.db import Database
from app.models import Artifact, Batch, BatchState, JobPurpose, JobState, RenderJob, Usage
from app.storage import LocalStorage, Storage
from engine.types import GenerationRequest, RenderSettings
from engine.units import clip_units
from tests.engines import SIZE, NullEngine
from tests.factories import SETTINGS
from tests.rendering import (
    WAIT_S,
    Run,
    many_steps,
    prompts,
    wait_for_states,
)


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
