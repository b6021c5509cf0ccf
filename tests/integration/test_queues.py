"""The doorbell on a real broker, a silent one, and none."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import replace

import pytest
import redis

from app.config import Config
from app.db import Database
from app.queues import Doorbell, Queue, ring_after_commit


@pytest.fixture
def broker(redis_url: str) -> redis.Redis:
    client = redis.Redis.from_url(redis_url)
    client.flushall()
    return client


@pytest.fixture
def connected(config: Config, redis_url: str) -> Config:
    return replace(config, redis_url=redis_url)


def messages(broker: redis.Redis, queue: Queue) -> list[dict[str, dict[str, object]]]:
    return [json.loads(text) for text in broker.lrange(queue.value, 0, -1)]


def test_a_ring_names_the_task_and_carries_its_hint(connected: Config, broker: redis.Redis) -> None:
    assert Doorbell(connected).ring(Queue.RENDER, hint="family-1", times=3)
    found = messages(broker, Queue.RENDER)
    assert len(found) == 3
    assert found[0]["headers"]["task"] == "adloom.wake_render"
    assert found[0]["headers"]["ignore_result"] is True
    assert found[0]["headers"]["kwargsrepr"] == "{'hint': 'family-1'}"
    assert messages(broker, Queue.CONTROL) == []


def test_the_bell_rings_after_commit_and_never_after_a_rollback(
    connected: Config, broker: redis.Redis
) -> None:
    database = Database(connected)
    with database.system_scope() as session:
        ring_after_commit(session, Queue.CONTROL)
        assert messages(broker, Queue.CONTROL) == [], "nobody wakes before the rows are there"
        session.connection()
    assert len(messages(broker, Queue.CONTROL)) == 1
    with pytest.raises(RuntimeError), database.system_scope() as session:
        session.connection()
        ring_after_commit(session, Queue.CONTROL)
        raise RuntimeError
    assert len(messages(broker, Queue.CONTROL)) == 1
    database.dispose()


def test_a_broker_that_is_down_fails_no_caller_and_holds_none_up(config: Config) -> None:
    database = Database(config)
    start = time.monotonic()
    with database.system_scope() as session:
        session.connection()
        ring_after_commit(session, Queue.CONTROL)
    database.dispose()
    assert not Doorbell(config).ring(Queue.RENDER)
    assert time.monotonic() - start < 1.5


def test_a_broker_that_hangs_holds_a_caller_up_once_and_briefly(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        doorbell = Doorbell(replace(config, redis_url=f"redis://127.0.0.1:{port}/0"))
        start = time.monotonic()
        assert not doorbell.ring(Queue.RENDER)
        assert time.monotonic() - start < 6
        start = time.monotonic()
        assert not doorbell.ring(Queue.RENDER)
        assert time.monotonic() - start < 0.1
    assert "workers find the work themselves" in caplog.text


def test_a_broker_that_comes_back_is_used_again(
    connected: Config, broker: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    doorbell = Doorbell(connected)
    monkeypatch.setattr("app.queues.QUIET_AFTER_FAILURE_S", 0.0)
    assert doorbell.ring(Queue.RENDER)
    broker.client_kill_filter(_type="normal", skipme=True)
    doorbell.ring(Queue.RENDER)
    assert doorbell.ring(Queue.RENDER)
