"""The control loop on a real database: expansion, announcements, rescue, counters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import redis
from sqlalchemy import func, select, text, update

from app.access import Actor
from app.config import Config, WorkerSettings
from app.db import Database
from app.models import (
    Batch,
    BatchCounter,
    BatchDelta,
    BatchState,
    ExpansionMode,
    JobState,
    RenderJob,
    Variant,
)
from app.queues import Doorbell, Queue
from app.services import batches, expanding, leases
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from app.storage import Storage
from tests.factories import SETTINGS, VALUES, make_campaign, make_jobs
from tests.worker_processes import wait_until
from workers.control import ControlLoop

SETTINGS_OF_TESTS = WorkerSettings(lease_s=60.0, poll_s=0.05)


@pytest.fixture
def broker(redis_url: str) -> redis.Redis:
    client = redis.Redis.from_url(redis_url)
    client.flushall()
    return client


@pytest.fixture
def make_control(
    config: Config, database: Database, storage: Storage, redis_url: str
) -> Iterator[Callable[..., ControlLoop]]:
    doorbell = Doorbell(replace(config, redis_url=redis_url))

    def make(settings: WorkerSettings = SETTINGS_OF_TESTS) -> ControlLoop:
        return ControlLoop(database, doorbell, storage, settings=settings)

    yield make
    doorbell.close()


@pytest.fixture
def control(make_control: Callable[..., ControlLoop]) -> ControlLoop:
    """Not started: tests call its turns."""
    return make_control()


@pytest.fixture
def launch(database: Database, actor: Actor, weights: object) -> Callable[..., UUID]:
    del weights

    def launch(**changes: Any) -> UUID:
        with database.system_scope() as session:
            campaign = make_campaign(session, workspace_id=actor.workspace_id)
        parameters = tuple(
            SpecParameter.model_validate({"name": name, "kind": name, "values": values})
            for name, values in VALUES.items()
        )
        values: dict[str, Any] = {
            "parameters": parameters,
            "mode": ExpansionMode.CARTESIAN,
            "settings": SpecSettings.model_validate(SETTINGS),
        }
        spec = BatchSpec(**values | changes)
        with database.workspace_scope(actor) as session:
            batch = batches.create_batch(session, actor, campaign_id=campaign.id, spec=spec)
            batches.launch_batch(session, actor, batch.id)
        return batch.id

    return launch


def rings(broker: redis.Redis) -> list[str]:
    return [json.loads(call)["headers"]["kwargsrepr"] for call in broker.lrange("render", 0, -1)]


def count(database: Database, table: type) -> int:
    with database.system_scope() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_a_launched_batch_is_expanded_and_its_first_chunk_announced_before_the_last(
    database: Database,
    control: ControlLoop,
    launch: Callable[..., UUID],
    broker: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expand_chunk = expanding.expand_chunk

    def expand_five(session: Any, batch_id: UUID) -> bool:
        return expand_chunk(session, batch_id, chunk_size=5)

    monkeypatch.setattr(expanding, "expand_chunk", expand_five)
    launch()
    assert control.turn(), "there is more to expand"
    assert count(database, Variant) == 5
    assert len(rings(broker)) == 1
    while control.turn():
        pass
    assert count(database, Variant) == 12
    with database.system_scope() as session:
        assert session.scalars(select(Batch.state)).all() == [BatchState.RUNNING]


def test_a_group_is_announced_once_so_that_no_calls_pile_up_without_listeners(
    database: Database, control: ControlLoop, batch: Batch, broker: redis.Redis
) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, ["a", "b"], affinity_key="family-1")
    for _ in range(3):
        control.turn()
    assert rings(broker) == ["{'hint': 'family-1'}"]
    with database.system_scope() as session:
        assert leases.claim(session, worker="w") is not None
        make_jobs(session, batch, ["c"], affinity_key="family-2")
    control.turn()
    assert rings(broker)[0] == "{'hint': 'family-2'}"


def test_jobs_of_a_lost_worker_are_rescued_and_announced(
    database: Database,
    make_control: Callable[..., ControlLoop],
    batch: Batch,
    pass_time: Callable[..., None],
    broker: redis.Redis,
) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, ["a", "b"])
        assert leases.claim(session, worker="lost") is not None
    control = make_control()
    control.turn()
    assert rings(broker) == []
    pass_time(100, "lease_expires_at")
    control.turn()
    assert rings(broker) == [], "the reaper comes every ten seconds, not at every turn"
    make_control().turn()
    assert len(rings(broker)) == 1
    with database.system_scope() as session:
        assert set(session.scalars(select(RenderJob.state))) == {JobState.RETRYABLE}


def test_duties_that_another_process_does_at_the_moment_are_left_to_it(
    database: Database, control: ControlLoop, batch: Batch, broker: redis.Redis
) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, ["a"])
    with database.system_scope() as other:
        for duty in ("rescue", "sweep", "announce", "roll up"):
            other.execute(
                text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"),
                {"name": f"adloom control: {duty}"},
            )
        assert not control.turn()
        assert rings(broker) == []
        assert count(database, BatchDelta) > 0
    control.turn()
    assert len(rings(broker)) == 1


def test_changes_are_rolled_up_into_counters(
    database: Database, control: ControlLoop, batch: Batch
) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, ["a", "b", "c"])
    control.turn()
    assert count(database, BatchDelta) == 0
    with database.system_scope() as session:
        counter = session.scalars(select(BatchCounter)).one()
    assert (counter.state, counter.count) == ("queued", 3)


def test_a_cancelled_batch_is_swept(
    database: Database, control: ControlLoop, batch: Batch, broker: redis.Redis
) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, ["a", "b"])
        session.execute(update(Batch).values(state=BatchState.CANCELLED))
    control.turn()
    with database.system_scope() as session:
        assert set(session.scalars(select(RenderJob.state))) == {JobState.CANCELLED}
        assert session.scalars(select(Batch.completed_at)).one() is not None


def test_a_duty_that_fails_keeps_no_other_from_being_done(
    database: Database,
    control: ControlLoop,
    batch: Batch,
    broker: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(session: object) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr("app.services.completion.complete_finished", fail)
    with database.system_scope() as session:
        make_jobs(session, batch, ["a"])
    control.turn()
    assert "control: sweep failed" in caplog.text
    assert len(rings(broker)) == 1
    assert count(database, BatchDelta) == 0


def test_the_loop_outlives_a_database_that_does_not_answer(
    config: Config,
    database: Database,
    storage: Storage,
    batch: Batch,
    redis_url: str,
    broker: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = Database(replace(config, database_system_url=config.database_system_url + "_gone"))
    doorbell = Doorbell(replace(config, redis_url=redis_url))
    control = ControlLoop(away, doorbell, storage, settings=SETTINGS_OF_TESTS)
    control.start()
    wait_until(lambda: "Postgres does not answer" in caplog.text)
    with database.system_scope() as session:
        make_jobs(session, batch, ["a"])
    away.system_engine = database.system_engine
    wait_until(lambda: broker.llen(Queue.RENDER.value) == 1)
    control.stop()
    assert control.join(5.0)
    away.dispose()


def test_two_control_processes_share_the_work_without_doubling_it(
    database: Database, make_control: Callable[..., ControlLoop], launch: Callable[..., UUID]
) -> None:
    loops = [make_control(), make_control()]
    for loop in loops:
        loop.start()
    ids = [launch() for _ in range(3)]
    wait_until(lambda: count(database, RenderJob) == 36)
    wait_until(lambda: count(database, BatchDelta) == 0)
    for loop in loops:
        loop.stop()
    assert all(loop.join(5.0) for loop in loops)
    with database.system_scope() as session:
        counters = session.scalars(select(BatchCounter)).all()
    assert {(row.batch_id, row.count) for row in counters} == {(batch_id, 12) for batch_id in ids}
