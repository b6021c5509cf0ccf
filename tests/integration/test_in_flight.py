"""Within a render: what workers say of their steps moves the bar and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select, update

from app.access import Actor
from app.config import Config, WorkerSettings
from app.db import Database
from app.models import Attempt, Batch, JobPurpose, Quote, RenderJob, WorkerProgress, WorkPhase
from app.services import batches, in_flight, leases
from app.services.in_flight import InHand
from app.storage import Storage
from tests.engines import NullEngine
from tests.factories import make_jobs
from tests.integration.lease_tools import claim_some, succeed
from tests.web import Browser
from workers import heartbeat
from workers.render_worker import RenderWorker


@pytest.fixture
def running_batch(database: Database, batch: Batch) -> Batch:
    """A running batch of four variants in one group, with the quote that its page shows."""
    with database.system_scope() as session:
        make_jobs(session, batch, [f"a sneaker, number {number}" for number in range(4)])
        session.execute(update(Batch).values(variant_count=4))
        session.add(
            Quote(
                workspace_id=batch.workspace_id,
                batch_id=batch.id,
                variant_count=4,
                full_units=40.0,
                shared_units=32.0,
                rate_micros_per_unit=100,
                full_cost_micros=4_000,
                cost_micros=3_200,
                currency="USD",
                details={},
            )
        )
    return batch


def say(database: Database, batch: Batch, steps_done: int, **more: Any) -> None:
    with database.system_scope() as session:
        in_flight.report(
            session,
            worker="worker-1",
            in_hand=InHand(
                batch_id=batch.id,
                purpose=JobPurpose.FINAL,
                lease_token=1,
                steps_done=steps_done,
                **{"job_count": 4, "group_count": 4, "steps_planned": 16, "rest_s": 0.0} | more,
            ),
        )


def reports(database: Database) -> int:
    with database.system_scope() as session:
        return session.scalar(select(func.count()).select_from(WorkerProgress)) or 0


def progress_of(database: Database, actor: Actor, batch: Batch) -> batches.Progress:
    with database.workspace_scope(actor) as session:
        return batches.get_progress(session, actor, batch.id)


def test_steps_of_running_renders_count_as_parts_of_renders(
    database: Database, actor: Actor, running_batch: Batch
) -> None:
    with database.system_scope() as session:
        leases.claim(session, worker="worker-1")
    assert progress_of(database, actor, running_batch).in_flight == 0
    say(database, running_batch, 8)
    with database.system_scope() as session:
        ten_seconds = func.make_interval(0, 0, 0, 0, 0, 0, 10)
        session.execute(update(WorkerProgress).values(started_at=func.now() - ten_seconds))
    progress = progress_of(database, actor, running_batch)
    assert (progress.done, progress.in_flight) == (0, 2.0)
    # Two renders' worth in ten seconds, and two are left.
    assert progress.rate_per_s == pytest.approx(0.2, rel=0.1)
    assert progress.eta_s == pytest.approx(10.0, rel=0.1)


def go_back(database: Database, column: Any, seconds: float) -> None:
    """As if what the column tells had been so many seconds earlier."""
    with database.system_scope() as session:
        by = func.make_interval(0, 0, 0, 0, 0, 0, seconds)
        session.execute(update(column.class_).values({column: column - by}))


def test_the_time_left_counts_what_follows_the_steps_and_goes_on_falling_in_it(
    database: Database, actor: Actor, running_batch: Batch
) -> None:
    with database.system_scope() as session:
        leases.claim(session, worker="worker-1")
    say(database, running_batch, 8, rest_s=20.0)
    go_back(database, WorkerProgress.started_at, 5)
    # Half of the steps took 5 s: 5 s more of them, and 20 s of what follows.
    assert progress_of(database, actor, running_batch).eta_s == pytest.approx(25.0, abs=1.0)
    say(database, running_batch, 16, rest_s=20.0, phase=WorkPhase.CHECKING)
    go_back(database, WorkerProgress.started_at, 5)
    left = [25.0]
    for _ in range(3):
        progress = progress_of(database, actor, running_batch)
        assert progress.phase is WorkPhase.CHECKING
        assert progress.eta_s is not None
        left.append(progress.eta_s)
        go_back(database, WorkerProgress.started_at, 8)
        go_back(database, WorkerProgress.steps_done_at, 8)
    assert left == sorted(left, reverse=True)
    assert left[1] == pytest.approx(20.0, abs=1.0)
    assert left[3] == pytest.approx(4.0, abs=1.0)


def test_a_check_that_takes_longer_than_foreseen_lets_the_time_left_stand_and_no_more(
    database: Database, actor: Actor, running_batch: Batch
) -> None:
    with database.system_scope() as session:
        leases.claim(session, worker="worker-1")
    say(database, running_batch, 16, rest_s=10.0, phase=WorkPhase.CHECKING)
    go_back(database, WorkerProgress.started_at, 30)
    go_back(database, WorkerProgress.steps_done_at, 20)
    overdue = progress_of(database, actor, running_batch).eta_s
    go_back(database, WorkerProgress.started_at, 5)
    go_back(database, WorkerProgress.steps_done_at, 5)
    assert progress_of(database, actor, running_batch).eta_s == pytest.approx(overdue, abs=0.1)


def test_what_a_worker_has_finished_of_its_group_counts_once(
    database: Database, actor: Actor, running_batch: Batch
) -> None:
    with database.system_scope() as session:
        leases.claim(session, worker="worker-1")
    say(database, running_batch, 8, job_count=2, steps_planned=8, rest_s=10.0)
    go_back(database, WorkerProgress.started_at, 30)
    # Three quarters of four renders by the clock, of which two are finished.
    assert progress_of(database, actor, running_batch).in_flight == pytest.approx(1.0, abs=0.1)


def test_the_time_that_a_batch_stood_still_does_not_slow_its_pace(
    database: Database, actor: Actor, running_batch: Batch
) -> None:
    group = claim_some(database, limit=2)
    assert [succeed(database, job.job_id, group.token) for job in group.jobs] == [True, True]
    for column, seconds in ((Attempt.started_at, 604), (Attempt.finished_at, 600)):
        go_back(database, column, seconds)
    go_back(database, RenderJob.finished_at, 600)
    # Two renders in four seconds, then ten minutes in which nothing ran.
    assert progress_of(database, actor, running_batch).rate_per_s == pytest.approx(0.5, rel=0.1)
    with database.system_scope() as session:
        leases.claim(session, worker="worker-2")
    say(database, running_batch, 4, job_count=2, group_count=2, steps_planned=8)
    go_back(database, WorkerProgress.started_at, 2)
    assert progress_of(database, actor, running_batch).rate_per_s == pytest.approx(0.5, rel=0.1)


@pytest.mark.usefixtures("weights")
def test_the_page_says_what_is_done_beside_the_steps(
    database: Database, editor: Browser, running_batch: Batch
) -> None:
    with database.system_scope() as session:
        leases.claim(session, worker="worker-1")
    say(database, running_batch, 0, phase=WorkPhase.LOADING)
    assert "loading the model" in editor.get(f"/batches/{running_batch.id}/progress").text
    say(database, running_batch, 16, phase=WorkPhase.CHECKING)
    assert "checking quality" in editor.get(f"/batches/{running_batch.id}/progress").text
    say(database, running_batch, 16, phase=WorkPhase.FINISHING)
    assert "finishing the files" in editor.get(f"/batches/{running_batch.id}/progress").text


@pytest.mark.usefixtures("weights")
def test_a_batch_is_not_whole_before_its_files_are_written(
    database: Database, editor: Browser, running_batch: Batch
) -> None:
    with database.system_scope() as session:
        leases.claim(session, worker="worker-1")
    say(database, running_batch, 16)
    page = editor.get(f"/batches/{running_batch.id}/progress").text
    assert '<p class="headline-figure">97%</p>' in page


def test_a_lost_worker_counts_no_more_and_is_forgotten(
    database: Database, actor: Actor, running_batch: Batch
) -> None:
    with database.system_scope() as session:
        leases.claim(session, worker="worker-1")
    say(database, running_batch, 8)
    with database.system_scope() as session:
        hours = func.make_interval(0, 0, 0, 0, 2)
        session.execute(update(WorkerProgress).values(updated_at=func.now() - hours))
    assert progress_of(database, actor, running_batch).in_flight == 0
    with database.system_scope() as session:
        leases.rescue_expired(session)
    assert reports(database) == 0


def test_a_new_lease_starts_a_new_measurement(database: Database, running_batch: Batch) -> None:
    say(database, running_batch, 8)
    with database.system_scope() as session:
        first = session.scalars(select(WorkerProgress.started_at)).one()
    say(database, running_batch, 12)
    with database.system_scope() as session:
        assert session.scalars(select(WorkerProgress.started_at)).one() == first
        session.execute(update(WorkerProgress).values(lease_token=0))
    say(database, running_batch, 0)
    with database.system_scope() as session:
        assert session.scalars(select(WorkerProgress.started_at)).one() > first


def test_a_worker_tells_of_its_steps_while_it_renders(
    config: Config,
    database: Database,
    storage: Storage,
    actor: Actor,
    running_batch: Batch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heartbeat, "REPORT_S", 0.05)
    engine = NullEngine(step_s=0.25)
    worker = RenderWorker(
        replace(config, workers=WorkerSettings(poll_s=0.05)),
        database,
        storage,
        worker="worker-1",
        engine_factory=lambda _: engine,
    )
    worker.start()
    seen: set[float] = set()
    deadline = time.monotonic() + 30
    while len(engine.rendered) < 4 and time.monotonic() < deadline:
        seen.add(round(progress_of(database, actor, running_batch).in_flight, 2))
        time.sleep(0.05)
    assert len(engine.rendered) == 4
    assert len(seen - {0.0}) >= 3, "the bar moved within the group"
    while reports(database) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert reports(database) == 0, "what is finished is not in hand any more"
    worker.stop()
    assert worker.join(5.0)


@pytest.mark.usefixtures("weights")
def test_the_page_says_what_becomes_of_the_variants_of_a_lost_worker(
    database: Database, editor: Browser, running_batch: Batch, pass_time: Callable[..., None]
) -> None:
    def page() -> str:
        return " ".join(editor.get(f"/batches/{running_batch.id}/progress").text.split())

    with database.system_scope() as session:
        leases.claim(session, worker="worker-1")
    pass_time(25, "lease_expires_at")
    assert "A worker was lost" not in page(), "one late heartbeat is none"
    pass_time(10, "lease_expires_at")
    assert "A worker was lost; its 4 variants go back in the queue within 40 s." in page()
    pass_time(30, "lease_expires_at")
    with database.system_scope() as session:
        assert leases.rescue_expired(session) == 4
    assert "A worker was lost; its 4 variants wait in the queue again." in page()
    with database.system_scope() as session:
        leases.claim(session, worker="worker-2")
    assert "A worker was lost" not in page()
