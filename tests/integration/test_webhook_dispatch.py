"""Several dispatchers and slow receivers: each attempt once, and nobody waits for another."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

import pytest
from sqlalchemy import select, update

from app.config import Config
from app.db import Database
from app.models import (
    WebhookDelivery,
    WebhookEndpoint,
)
from app.services import outbox, webhook_claiming, webhook_delivery
from app.services.webhook_claiming import MAX_IN_FLIGHT
from app.services.webhook_delivery import AttemptEnd
from tests.integration.webhook_tools import LOOPBACK, Desk
from tests.webhook_receiver import Received, Receiver, Reply
from tests.worker_processes import wait_until
from workers.webhook_loop import WebhookLoop


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, webhook_allowed_networks=LOOPBACK)


def test_two_dispatchers_send_every_attempt_once(
    desk: Desk, config: Config, receiver: Receiver
) -> None:
    """Each first attempt of a message fails, so there are retries to fight for too."""
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def answer(message: Received) -> Reply:
        with lock:
            seen[message.message_id] += 1
            number = seen[message.message_id]
        return Reply(500 if number == 1 else 204)

    receiver.answer = answer
    for number in range(4):
        desk.add_endpoint(receiver.url(f"/{number}"))
    databases = [Database(config), Database(config)]
    loops = [WebhookLoop(database, config) for database in databases]
    for loop in loops:
        loop.start()
    desk.emit(15)
    wait_until(lambda: desk.states() == {"succeeded": 60}, timeout_s=90)
    for loop in loops:
        loop.stop()
    assert all(loop.join(20) for loop in loops)
    with desk.database.system_scope() as session:
        counted = session.scalars(select(WebhookDelivery.attempt_count)).all()
    assert sum(counted) == len(receiver.received) == desk.attempt_count()
    assert max(Counter((m.path, m.message_id) for m in receiver.received).values()) <= 2
    for database in databases:
        database.dispose()


def test_a_claimed_delivery_belongs_to_one_dispatcher_until_its_lease_ends(
    desk: Desk, receiver: Receiver
) -> None:
    desk.add_endpoint(receiver.url())
    [event_id] = desk.emit()
    with desk.database.system_scope() as session:
        outbox.fan_out(session, now=desk.clock())

    def claim() -> list[webhook_claiming.DueDelivery]:
        with desk.database.system_scope() as session:
            return webhook_claiming.claim(session, now=desk.clock(), slots=4, slots_for_failing=4)

    [lost] = claim()
    assert claim() == []
    desk.clock.move(seconds=121)
    [held] = claim()
    assert (lost.number, held.number) == (1, 2)
    with desk.database.system_scope() as session:
        end = AttemptEnd(status=500)
        assert not webhook_delivery.finish(session, lost, end, now=desk.clock())
        assert webhook_delivery.finish(session, held, AttemptEnd(status=204), now=desk.clock())
    assert desk.states() == {"succeeded": 1}
    first, second = desk.attempts(event_id)
    assert "may have arrived" in (first.error or "")
    assert second.status == 204


def test_a_slow_endpoint_delays_no_other(desk: Desk, receiver: Receiver) -> None:
    release = threading.Event()

    def answer(message: Received) -> Reply:
        if message.path == "/slow":
            release.wait(30)
        return Reply()

    receiver.answer = answer
    desk.add_endpoint(receiver.url("/slow"))
    desk.add_endpoint(receiver.url("/quick"))
    loop = WebhookLoop(desk.database, desk.config)
    loop.start()
    desk.emit(25)
    wait_until(lambda: len(receiver.on("/quick")) == 25, timeout_s=30)
    assert len(receiver.on("/slow")) == MAX_IN_FLIGHT, "no more than its share is in flight"
    release.set()
    wait_until(lambda: desk.states() == {"succeeded": 50}, timeout_s=30)
    loop.stop()
    assert loop.join(10)


def test_many_endpoints_that_hang_leave_slots_for_the_others(
    desk: Desk, receiver: Receiver
) -> None:
    release = threading.Event()

    def answer(message: Received) -> Reply:
        if message.path != "/quick":
            release.wait(30)
        return Reply()

    receiver.answer = answer
    ids = [desk.add_endpoint(receiver.url(f"/{number}"))[0] for number in range(18)]
    desk.add_endpoint(receiver.url("/quick"))
    with desk.database.system_scope() as session:
        session.execute(
            update(WebhookEndpoint)
            .where(WebhookEndpoint.id.in_(ids))
            .values(failing_since=desk.clock(), last_failed_at=desk.clock())
        )
    loop = WebhookLoop(desk.database, desk.config)
    loop.start()
    desk.emit(10)
    wait_until(lambda: len(receiver.on("/quick")) == 10, timeout_s=30)
    hanging = Counter(message.path for message in receiver.received if message.path != "/quick")
    assert max(hanging.values()) == 1
    release.set()
    loop.stop()
    assert loop.join(15)
