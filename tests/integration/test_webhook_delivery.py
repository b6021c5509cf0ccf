"""Messages reach real receivers: signed, once each, on schedule, whatever the receivers do."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from itertools import pairwise
from uuid import UUID

import pytest
from sqlalchemy import func, select, update
from standardwebhooks import Webhook

from app.config import Config
from app.db import Database
from app.errors import Conflict
from app.models import (
    WebhookDelivery,
    WebhookDeliveryState,
    WebhookDisabledReason,
    WebhookEndpoint,
    WebhookEventType,
)
from app.services import outbox, webhooks, webhooks_log
from app.services.webhook_claiming import MAX_IN_FLIGHT
from app.services.webhook_delivery_schedule import MAX_ATTEMPTS, RETRY_DELAYS_S
from tests.integration.webhook_tools import LOOPBACK, Desk
from tests.webhook_receiver import Received, Receiver, Reply
from workers.webhook_loop import WebhookLoop


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, webhook_allowed_networks=LOOPBACK)


def endpoint_of(desk: Desk, endpoint_id: UUID) -> WebhookEndpoint:
    with desk.database.system_scope() as session:
        return session.get_one(WebhookEndpoint, endpoint_id)


def test_a_message_is_verified_by_the_library_and_says_what_happened(
    desk: Desk, receiver: Receiver
) -> None:
    _, secret = desk.add_endpoint(receiver.url())
    [event_id] = desk.emit(name="Frühling ☀")
    desk.work()
    [message] = receiver.received
    payload = Webhook(secret).verify(message.body, message.headers)
    assert payload["type"] == "batch.completed"
    assert payload["data"] == {"n": 0, "name": "Frühling ☀"}
    assert set(payload) == {"type", "timestamp", "data"}
    assert message.message_id == f"evt_{event_id.hex}"
    assert message.headers["content-type"] == "application/json"
    assert message.headers["user-agent"].startswith("Adloom-Webhooks/")
    assert desk.states() == {"succeeded": 1}
    [attempt] = desk.attempts(event_id)
    assert (attempt.number, attempt.status, attempt.error) == (1, 204, None)
    assert attempt.latency_ms is not None


def test_an_endpoint_hears_what_it_has_chosen(desk: Desk, receiver: Receiver) -> None:
    desk.add_endpoint(receiver.url("/all"))
    desk.add_endpoint(receiver.url("/failures"), event_types=["batch.failed"])
    for event_type in (
        WebhookEventType.BATCH_COMPLETED,
        WebhookEventType.BATCH_FAILED,
        WebhookEventType.VARIANT_COMPLETED,
    ):
        desk.emit(event_type=event_type)
    desk.work()
    heard = [message.payload["type"] for message in receiver.on("/all")]
    assert sorted(heard) == ["batch.completed", "batch.failed"]
    assert [message.payload["type"] for message in receiver.on("/failures")] == ["batch.failed"]


def test_an_event_of_a_transaction_that_rolls_back_is_never_told(
    desk: Desk, receiver: Receiver
) -> None:
    desk.add_endpoint(receiver.url())
    with pytest.raises(RuntimeError), desk.database.system_scope() as session:
        outbox.emit(session, desk.actor.workspace_id, WebhookEventType.BATCH_COMPLETED, {})
        raise RuntimeError("the change did not happen")
    desk.work()
    assert receiver.received == []


def test_after_a_day_of_trouble_the_retries_have_delivered_everything(
    desk: Desk, receiver: Receiver
) -> None:
    receiver.answer = lambda _: Reply(500, b"database is down")
    endpoint_id, _ = desk.add_endpoint(receiver.url())
    start = desk.clock()
    told = desk.emit(2)
    for hours in (1, 6, 20):
        desk.work_until(start + timedelta(hours=hours))
        told += desk.emit(2)
    desk.work_until(start + timedelta(hours=24))
    assert desk.states() == {"pending": 8}
    assert endpoint_of(desk, endpoint_id).disabled_at is None
    down = Counter(message.message_id for message in receiver.received)
    assert set(down) == {outbox.message_id(event_id) for event_id in told}
    receiver.received.clear()
    receiver.answer = lambda _: Reply()
    desk.work_until(start + timedelta(hours=40))
    assert desk.states() == {"succeeded": 8}
    up = Counter(message.message_id for message in receiver.received)
    assert up == dict.fromkeys(down, 1)
    assert endpoint_of(desk, endpoint_id).failing_since is None
    assert desk.attempts(told[0])[0].answer == "database is down"


def test_the_attempts_are_those_of_the_specification(desk: Desk, receiver: Receiver) -> None:
    receiver.answer = lambda _: Reply(500)
    desk.add_endpoint(receiver.url())
    start = desk.clock()
    [event_id] = desk.emit()
    desk.work_until(start + timedelta(days=4))
    attempts = desk.attempts(event_id)
    assert [attempt.number for attempt in attempts] == list(range(1, MAX_ATTEMPTS + 1))
    moments = [start, *(attempt.started_at for attempt in attempts)]
    gaps = [(later - sooner).total_seconds() for sooner, later in pairwise(moments)]
    for gap, delay in zip(gaps, RETRY_DELAYS_S, strict=True):
        # A tenth of jitter, and the time that this machine took itself.
        assert 0.9 * delay <= gap <= 1.1 * delay + 5
    assert gaps[1:] != list(RETRY_DELAYS_S[1:]), "there is no jitter"
    assert desk.states() == {"failed": 1}


def test_six_days_of_trouble_switch_it_off_and_a_replay_delivers_all(
    desk: Desk, receiver: Receiver
) -> None:
    receiver.answer = lambda message: Reply(503 if message.path == "/hook" else 204)
    endpoint_id, _ = desk.add_endpoint(receiver.url())
    desk.add_endpoint(receiver.url("/operations"), event_types=["endpoint.disabled"])
    start = desk.clock()
    told: list[UUID] = []
    for day in range(6):
        told += desk.emit()
        desk.work_until(start + timedelta(days=day + 1))
    endpoint = endpoint_of(desk, endpoint_id)
    assert endpoint.disabled_reason is WebhookDisabledReason.FAILING
    assert endpoint.disabled_at is not None
    assert timedelta(days=5) <= endpoint.disabled_at - start < timedelta(days=6, hours=6)
    with desk.database.workspace_scope(desk.actor) as session:
        [notice] = webhooks_log.list_notices(session, desk.actor)
    assert notice.id == endpoint_id
    [message] = receiver.on("/operations")
    assert message.payload["data"]["reason"] == "failing"
    assert message.payload["data"]["endpoint_id"] == str(endpoint_id)

    # What happens while it is off is held; nothing is sent.
    receiver.received.clear()
    told += desk.emit()
    desk.work_until(start + timedelta(days=8))
    assert receiver.on("/hook") == []
    assert set(desk.states(endpoint_id)) == {"failed", "held"}

    receiver.answer = lambda _: Reply()
    with desk.database.workspace_scope(desk.actor) as session:
        with pytest.raises(Conflict, match="switched off"):
            webhooks.replay_failed(session, desk.actor, endpoint_id)
        webhooks.enable_endpoint(session, desk.actor, endpoint_id)
        assert webhooks_log.list_notices(session, desk.actor) == []
    desk.work()
    assert receiver.on("/hook") == [], "it is for the owner to say when"
    with desk.database.workspace_scope(desk.actor) as session:
        assert webhooks.replay_failed(session, desk.actor, endpoint_id) == len(told)
    desk.work()
    assert sorted(message.message_id for message in receiver.on("/hook")) == sorted(
        outbox.message_id(event_id) for event_id in told
    )
    assert desk.states(endpoint_id) == {"succeeded": len(told)}


def test_failures_with_days_of_silence_between_them_do_not_switch_it_off(
    desk: Desk, receiver: Receiver
) -> None:
    receiver.answer = lambda _: Reply(500)
    endpoint_id, _ = desk.add_endpoint(receiver.url())
    start = desk.clock()
    for day in (0, 7, 14):
        desk.clock.move_to(start + timedelta(days=day))
        desk.emit()
        desk.work_until(start + timedelta(days=day + 4))
    assert desk.states() == {"failed": 3}
    assert endpoint_of(desk, endpoint_id).disabled_at is None


def test_an_endpoint_that_is_gone_is_switched_off_at_once(desk: Desk, receiver: Receiver) -> None:
    receiver.answer = lambda _: Reply(410)
    endpoint_id, _ = desk.add_endpoint(receiver.url())
    desk.emit(3)
    desk.work()
    assert endpoint_of(desk, endpoint_id).disabled_reason is WebhookDisabledReason.GONE
    sent = len(receiver.received)
    assert sent <= MAX_IN_FLIGHT
    desk.clock.move(days=2)
    desk.work()
    assert len(receiver.received) == sent
    assert desk.states() == {"held": 3}


@pytest.mark.parametrize(
    ("headers", "at_least_s", "at_most_s"),
    [
        ({}, 60, 62),
        ({"Retry-After": "600"}, 600, 605),
        ({"Retry-After": "864000"}, 3_600, 3_605),
        ({"Retry-After": "soon"}, 60, 62),
        ({"Retry-After": "-5"}, 60, 62),
    ],
)
def test_an_endpoint_that_asks_for_a_pause_gets_it_within_bounds(
    desk: Desk, receiver: Receiver, headers: dict[str, str], at_least_s: float, at_most_s: float
) -> None:
    receiver.answer = lambda _: Reply(429, headers=headers)
    desk.add_endpoint(receiver.url())
    [event_id] = desk.emit()
    desk.work()
    start = desk.clock()
    due_at = desk.next_attempt_at()
    assert due_at is not None
    assert at_least_s - 5 <= (due_at - start).total_seconds() <= at_most_s
    # The pause holds for what happens meanwhile too.
    desk.emit()
    desk.work()
    assert len(receiver.received) == 1
    receiver.answer = lambda _: Reply()
    desk.work_until(start + timedelta(seconds=at_most_s + 60))
    assert desk.states() == {"succeeded": 2}
    assert len(desk.attempts(event_id)) == 2


def test_a_pause_may_be_asked_for_as_a_date(desk: Desk, receiver: Receiver) -> None:
    def answer(_: Received) -> Reply:
        until = desk.clock() + timedelta(minutes=10)
        return Reply(503, headers={"Retry-After": format_datetime(until, usegmt=True)})

    receiver.answer = answer
    desk.add_endpoint(receiver.url())
    desk.emit()
    desk.work()
    due_at = desk.next_attempt_at()
    assert due_at is not None
    assert 590 <= (due_at - desk.clock()).total_seconds() <= 600


def test_a_redirect_is_a_failure_that_says_what_to_do(desk: Desk, receiver: Receiver) -> None:
    receiver.answer = lambda _: Reply(301, headers={"Location": receiver.url("/new")})
    desk.add_endpoint(receiver.url())
    [event_id] = desk.emit()
    desk.work()
    assert receiver.on("/new") == []
    [attempt] = desk.attempts(event_id)
    assert attempt.status == 301
    assert "redirects are not followed" in (attempt.error or "")


def test_a_private_address_is_not_called_without_the_setting(
    desk: Desk, database: Database, config: Config, receiver: Receiver
) -> None:
    desk.add_endpoint(receiver.url(host="localhost"))
    desk.loop = WebhookLoop(
        database, replace(config, webhook_allowed_networks=()), clock=desk.clock
    )
    [event_id] = desk.emit()
    desk.work()
    assert receiver.received == []
    [attempt] = desk.attempts(event_id)
    assert "not on the public internet" in (attempt.error or "")
    assert desk.states() == {"pending": 1}


def test_both_secrets_sign_for_a_day_after_a_rotation(desk: Desk, receiver: Receiver) -> None:
    endpoint_id, old = desk.add_endpoint(receiver.url())
    with desk.database.workspace_scope(desk.actor) as session:
        _, new = webhooks.rotate_secret(session, desk.actor, endpoint_id)
    for hours, accepted in ((0, (old, new)), (23, (old, new)), (2, (new,))):
        desk.clock.move(hours=hours)
        desk.emit()
        desk.work()
        message = receiver.received[-1]
        assert message.headers["webhook-signature"].split(" ") == [
            signature(secret, message) for secret in reversed(accepted)
        ]


def signature(secret: str, message: Received) -> str:
    """Computed here anew: the library refuses the times that the test moves to."""
    content = f"{message.message_id}.{message.headers['webhook-timestamp']}.".encode()
    key = b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, content + message.body, hashlib.sha256).digest()
    return "v1," + b64encode(digest).decode()


def test_a_secret_that_cannot_be_read_is_named_as_the_reason(
    desk: Desk, database: Database, receiver: Receiver
) -> None:
    endpoint_id, _ = desk.add_endpoint(receiver.url())
    with database.system_scope() as session:
        session.execute(update(WebhookEndpoint).values(secret_sealed=b"sealed under another key"))
    [event_id] = desk.emit()
    desk.work()
    assert receiver.received == []
    assert "ADLOOM_SECRET_KEY has changed" in (desk.attempts(event_id)[0].error or "")
    with database.workspace_scope(desk.actor) as session:
        webhooks.rotate_secret(session, desk.actor, endpoint_id, at_once=True)
    desk.clock.move(minutes=1)
    desk.work()
    assert desk.states() == {"succeeded": 1}


def test_a_ping_goes_to_its_endpoint_once_whatever_comes_back(
    desk: Desk, receiver: Receiver
) -> None:
    receiver.answer = lambda _: Reply(500)
    endpoint_id, _ = desk.add_endpoint(receiver.url(), event_types=["batch.failed"])
    desk.add_endpoint(receiver.url("/other"))
    with desk.database.workspace_scope(desk.actor) as session:
        webhooks.ping(session, desk.actor, endpoint_id)
    desk.work()
    desk.clock.move(days=1)
    desk.work()
    assert [(message.path, message.payload["type"]) for message in receiver.received] == [
        ("/hook", "endpoint.ping")
    ]
    assert desk.states() == {"failed": 1}


def test_one_message_can_be_sent_again_under_its_own_id(desk: Desk, receiver: Receiver) -> None:
    desk.add_endpoint(receiver.url())
    [event_id] = desk.emit()
    desk.work()
    with desk.database.workspace_scope(desk.actor) as session:
        [row] = webhooks_log.list_deliveries(session, desk.actor)
        webhooks.replay_delivery(session, desk.actor, row.id)
    desk.work()
    first, second = receiver.received
    assert first.message_id == second.message_id
    assert first.body == second.body
    assert [attempt.number for attempt in desk.attempts(event_id)] == [1, 2]


def test_a_replay_can_begin_at_a_time(desk: Desk, receiver: Receiver) -> None:
    receiver.answer = lambda _: Reply(500)
    endpoint_id, _ = desk.add_endpoint(receiver.url())
    desk.emit()
    with desk.database.system_scope() as session:
        since = session.scalar(select(func.clock_timestamp()))
    desk.emit(2)
    desk.work()
    with desk.database.system_scope() as session:
        session.execute(update(WebhookDelivery).values(state=WebhookDeliveryState.FAILED))
    with desk.database.workspace_scope(desk.actor) as session:
        assert webhooks.replay_failed(session, desk.actor, endpoint_id, since=since) == 2


def test_events_are_kept_for_a_month_with_their_deliveries(desk: Desk, receiver: Receiver) -> None:
    desk.add_endpoint(receiver.url())
    desk.emit(3)
    desk.work()
    desk.clock.move(days=29)
    desk.work()
    assert desk.states() == {"succeeded": 3}
    desk.clock.move(days=1, hours=1)
    desk.work()
    assert desk.states() == {}
    assert desk.attempt_count() == 0
