"""A worker that is told to stop in the midst of a group leaves a state; the next one goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import select, text, update

from app.access import Actor
from app.db import Database
from app.errors import StorageError
from app.models import Artifact, Batch, JobState, RenderJob, RenderState, Usage
from app.services import batches, render_states
from app.storage import Storage
from tests.checkpoints import random_model_dir
from tests.factories import SETTINGS
from tests.rendering import Run, start_counts, states, wait_for_states

STEPS = SETTINGS["num_inference_steps"]


class Worker:
    """The real engine in a worker, which is told to stop after so many steps."""

    def __init__(self, run: Run, *, stop_after: int = 0, **options: Any) -> None:
        # Local import: torch takes seconds to load.
        from engine.config import EngineConfig
        from engine.engine import Engine

        config = EngineConfig(model_dir=random_model_dir(), device="cpu", guard_every=0)
        self.engine = Engine(config)
        self.results: list[Any] = []
        self._steps_left = stop_after
        self._worker = run(self, **options)

    def generate(self, requests: Any, *, on_progress: Any, **options: Any) -> Iterator[Any]:
        def note(progress: Any) -> None:
            on_progress(progress)
            self._steps_left -= 1
            if self._steps_left == 0:
                self._worker.stop()

        for outcome in self.engine.generate(requests, on_progress=note, **options):
            self.results.append(outcome)
            yield outcome

    def join(self) -> None:
        assert self._worker.join(20.0)


@pytest.fixture
def stopped(
    database: Database, run: Run, enqueue: Callable[..., list[UUID]]
) -> Callable[[], RenderState]:
    """Has a worker stopped after step 2 of the first of two jobs; gives what it left."""

    def stop() -> RenderState:
        enqueue(["a sneaker", "a mug"])
        Worker(run, stop_after=2).join()
        with database.system_scope() as session:
            first, second = session.scalars(select(RenderState)).all()
        assert first.storage_key == second.storage_key
        return first

    return stop


def test_the_next_worker_goes_on_where_the_first_one_stopped_bit_for_bit(
    database: Database, storage: Storage, run: Run, stopped: Callable[[], RenderState]
) -> None:
    state = stopped()
    assert states(database) == {"queued": 2}
    assert start_counts(database) == {0}, "handed back uncharged"
    assert state.step == 2
    assert storage.exists(state.storage_key)

    second = Worker(run)
    wait_for_states(database, {"succeeded": 2})
    with database.system_scope() as session:
        rows = session.execute(
            select(RenderJob.plan_order, Artifact.provenance, Usage.units)
            .join(Artifact, Artifact.id == RenderJob.artifact_id)
            .join(Usage, Usage.job_id == RenderJob.id)
            .order_by(RenderJob.plan_order)
        ).all()
        requests = {str(job.id): job.plan_order for job in session.scalars(select(RenderJob)).all()}
    assert [row.provenance["resumed"]["from_step"] for row in rows] == [2, 0]
    assert rows[0].units == rows[1].units, "both are charged all their steps"
    (resumed,) = [each for each in second.results if requests[each.request_id] == 0]
    np.testing.assert_array_equal(resumed.frames, render_uncut(database, second))


def render_uncut(database: Database, worker: Worker) -> np.ndarray:
    """The first job's frames from one run."""
    # Local import: torch takes seconds to load.
    from engine.types import GenerationRequest, RenderSettings

    with database.system_scope() as session:
        seed = session.scalar(text("SELECT seed FROM variants LIMIT 1"))
    request = GenerationRequest(
        request_id="uncut",
        prompt="a sneaker",
        seed=seed,
        settings=RenderSettings.from_dict(SETTINGS),
    )
    (result,) = worker.engine.generate([request])
    return result.frames


def test_a_state_is_swept_away_when_its_jobs_have_ended(
    database: Database, storage: Storage, run: Run, stopped: Callable[[], RenderState]
) -> None:
    key = stopped().storage_key
    with database.system_scope() as session:
        assert render_states.sweep(session, storage) == 0, "somebody may still come for it"
    Worker(run)
    wait_for_states(database, {"succeeded": 2})
    with database.system_scope() as session:
        assert render_states.sweep(session, storage) == 1
    assert not storage.exists(key)
    assert count_states(database) == 0


def test_a_state_goes_with_its_cancelled_batch(
    database: Database,
    storage: Storage,
    actor: Actor,
    batch: Batch,
    stopped: Callable[[], RenderState],
) -> None:
    key = stopped().storage_key
    with database.workspace_scope(actor) as session:
        batches.cancel_batch(session, actor, batch.id)
    with database.system_scope() as session:
        assert render_states.sweep(session, storage) == 1
    assert not storage.exists(key)


def test_an_expired_state_is_neither_used_nor_kept(
    database: Database, storage: Storage, run: Run, stopped: Callable[[], RenderState]
) -> None:
    key = stopped().storage_key
    with database.system_scope() as session:
        session.execute(text("UPDATE render_states SET expires_at = now() - interval '1 s'"))
        assert render_states.find_keys(session, list(variant_ids(database))) == []
        assert render_states.sweep(session, storage) == 1
    assert not storage.exists(key)
    second = Worker(run)
    wait_for_states(database, {"succeeded": 2})
    assert all("resumed" not in result.provenance for result in second.results)


def test_a_damaged_state_is_rendered_from_the_start_and_the_artifact_says_so(
    database: Database, storage: Storage, run: Run, stopped: Callable[[], RenderState]
) -> None:
    storage.delete(stopped().storage_key)
    Worker(run)
    wait_for_states(database, {"succeeded": 2})
    with database.system_scope() as session:
        made = session.scalars(select(Artifact.provenance)).all()
    assert [each["resumed"] for each in made] == [
        {"from_step": 0, "because": "what was stored cannot be read"}
    ] * 2


def test_a_store_that_takes_no_state_keeps_no_job_back(
    database: Database,
    storage: Storage,
    run: Run,
    enqueue: Callable[..., list[UUID]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused: list[str] = []

    def refuse(key: str, *args: Any, **options: Any) -> None:
        refused.append(key)
        raise StorageError(f"{key} is refused")

    monkeypatch.setattr(storage, "put_file", refuse)
    enqueue(["a sneaker"])
    Worker(run, stop_after=2).join()
    assert len(refused) == 1
    assert states(database) == {"queued": 1}
    assert start_counts(database) == {0}


def test_who_lost_the_lease_leaves_no_state(
    database: Database, enqueue: Callable[..., list[UUID]]
) -> None:
    job_ids = enqueue(["a sneaker"])
    with database.system_scope() as session:
        session.execute(update(RenderJob).values(state=JobState.RUNNING, lease_token=7))
        facts = {"job_ids": job_ids, "storage_key": "a/states/b", "step": 2, "size_bytes": 9}
        assert render_states.record(session, token=6, **facts) == 0
        assert render_states.record(session, token=7, **facts) == 1


def variant_ids(database: Database) -> set[UUID]:
    with database.system_scope() as session:
        return set(session.scalars(select(RenderJob.variant_id)))


def count_states(database: Database) -> int:
    with database.system_scope() as session:
        return len(session.scalars(select(RenderState)).all())
