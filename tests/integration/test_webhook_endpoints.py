"""Owners steer their webhook endpoints, nobody else does, and what is entered is checked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from app.access import Action, Actor, Role
from app.db import Database
from app.errors import Conflict, Forbidden, InvalidInput, LimitExceeded, NotFound
from app.models import WebhookDisabledReason, WebhookEndpoint, WebhookEventType
from app.services import webhooks, webhooks_log
from app.services.webhook_signing import unseal
from tests.factories import make_workspace

URL = "https://hooks.example.com/adloom"

Call = Callable[[Session, Actor, UUID], Any]
CALLS: dict[str, Call] = {
    "create": lambda session, actor, _: webhooks.create_endpoint(session, actor, url=URL),
    "list": lambda session, actor, _: webhooks.list_endpoints(session, actor),
    "get": webhooks.get_endpoint,
    "update": lambda session, actor, endpoint_id: webhooks.update_endpoint(
        session, actor, endpoint_id, url=URL, description="", event_types=["batch.failed"]
    ),
    "enable": webhooks.enable_endpoint,
    "disable": webhooks.disable_endpoint,
    "rotate": webhooks.rotate_secret,
    "ping": webhooks.ping,
    "replay": webhooks.replay_failed,
    "delete": webhooks.delete_endpoint,
    "replay one": webhooks.replay_delivery,
    "deliveries": lambda session, actor, _: webhooks_log.list_deliveries(session, actor),
    "delivery": webhooks_log.get_delivery,
    "counts": webhooks_log.count_deliveries,
}
OF_ONE_ENDPOINT = ["get", "update", "enable", "disable", "rotate", "ping", "replay", "delete"]


@pytest.fixture
def endpoint_id(database: Database, actor: Actor) -> UUID:
    with database.workspace_scope(actor) as session:
        return webhooks.create_endpoint(session, actor, url=URL)[0].id


def test_an_endpoint_hears_all_but_the_bundles_unless_it_chooses(
    database: Database, actor: Actor
) -> None:
    with database.workspace_scope(actor) as session:
        endpoint, secret = webhooks.create_endpoint(
            session, actor, url=f" {URL} ", description="  posts   to the team "
        )
    assert (endpoint.url, endpoint.description) == (URL, "posts to the team")
    assert set(WebhookEventType) - set(endpoint.event_types) == {
        WebhookEventType.VARIANT_COMPLETED,
        WebhookEventType.ENDPOINT_PING,
    }
    assert secret.startswith("whsec_")
    assert secret.encode() not in endpoint.secret_sealed


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("role", [Role.VIEWER, Role.EDITOR])
def test_who_may_not_manage_may_not_touch_webhooks(
    database: Database, actor: Actor, endpoint_id: UUID, name: str, role: Role
) -> None:
    other = Actor(workspace_id=actor.workspace_id, role=role)
    with database.workspace_scope(other) as session:
        with pytest.raises(Forbidden):
            CALLS[name](session, other, endpoint_id)
        assert webhooks_log.list_notices(session, other) == []


def test_a_key_without_the_scope_may_not_manage_them_either(
    database: Database, actor: Actor
) -> None:
    key = Actor(
        workspace_id=actor.workspace_id,
        role=Role.OWNER,
        scopes=frozenset({Action.VIEW, Action.LAUNCH}),
    )
    with database.workspace_scope(key) as session, pytest.raises(Forbidden):
        webhooks.create_endpoint(session, key, url=URL)


@pytest.mark.parametrize("name", OF_ONE_ENDPOINT)
def test_an_endpoint_of_another_workspace_is_not_found(
    database: Database, endpoint_id: UUID, name: str
) -> None:
    with database.system_scope() as session:
        stranger = Actor(workspace_id=make_workspace(session).id, role=Role.OWNER)
    # Without row-level security too: the services filter by themselves.
    for scope in (database.workspace_scope(stranger), database.system_scope()):
        with scope as session, pytest.raises(NotFound):
            CALLS[name](session, stranger, endpoint_id)


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"url": "http://127.0.0.1:8000/"}, "url", "not on the public internet"),
        ({"url": "https://user:pass@example.com/"}, "url", "user name and password"),
        ({"url": "example.com/hook"}, "url", "must start with https"),
        ({"event_types": []}, "event_types", "at least one event"),
        ({"event_types": ["export.ready"]}, "event_types", "no event 'export.ready'"),
        ({"event_types": ["endpoint.ping"]}, "event_types", "no event 'endpoint.ping'"),
        ({"description": "x" * 201}, "description", "up to 200"),
    ],
)
def test_what_cannot_be_used_is_named(
    database: Database, actor: Actor, values: dict[str, Any], field: str, message: str
) -> None:
    with (
        database.workspace_scope(actor) as session,
        pytest.raises(InvalidInput, match=message) as caught,
    ):
        webhooks.create_endpoint(session, actor, **{"url": URL} | values)
    assert caught.value.field == field


def test_a_workspace_has_a_limit_of_endpoints(database: Database, actor: Actor) -> None:
    with database.workspace_scope(actor) as session:
        for _ in range(webhooks.MAX_ENDPOINTS):
            webhooks.create_endpoint(session, actor, url=URL)
        with pytest.raises(LimitExceeded, match="at most 20"):
            webhooks.create_endpoint(session, actor, url=URL)


def test_a_second_rotation_within_a_day_is_refused_unless_the_secret_leaked(
    database: Database, actor: Actor, endpoint_id: UUID
) -> None:
    secret_key = "tests-only-" + "x" * 32
    with database.workspace_scope(actor) as session:
        first = unseal(
            webhooks.get_endpoint(session, actor, endpoint_id).secret_sealed, secret_key=secret_key
        )
        endpoint, second = webhooks.rotate_secret(session, actor, endpoint_id)
        assert endpoint.previous_secret_sealed is not None
        assert unseal(endpoint.previous_secret_sealed, secret_key=secret_key) == first
        with pytest.raises(Conflict, match="less than 24 hours ago"):
            webhooks.rotate_secret(session, actor, endpoint_id)
        endpoint, third = webhooks.rotate_secret(session, actor, endpoint_id, at_once=True)
        assert len({first, second, third}) == 3
        assert endpoint.previous_secret_sealed is None
    with database.system_scope() as session:
        session.execute(
            update(WebhookEndpoint).values(
                previous_secret_expires_at=endpoint.created_at - timedelta(hours=1)
            )
        )
    with database.workspace_scope(actor) as session:
        webhooks.rotate_secret(session, actor, endpoint_id)


def test_a_notice_ends_when_the_owner_decides(
    database: Database, actor: Actor, endpoint_id: UUID
) -> None:
    def stop() -> None:
        with database.system_scope() as session:
            endpoint = session.get_one(WebhookEndpoint, endpoint_id)
            endpoint.disabled_at = endpoint.created_at
            endpoint.disabled_reason = WebhookDisabledReason.FAILING

    for decide in (webhooks.enable_endpoint, webhooks.disable_endpoint, webhooks.delete_endpoint):
        stop()
        with database.workspace_scope(actor) as session:
            assert len(webhooks_log.list_notices(session, actor)) == 1
            decide(session, actor, endpoint_id)
            assert webhooks_log.list_notices(session, actor) == []


def test_an_endpoint_that_is_off_gets_no_ping(
    database: Database, actor: Actor, endpoint_id: UUID
) -> None:
    with database.workspace_scope(actor) as session:
        webhooks.disable_endpoint(session, actor, endpoint_id)
        with pytest.raises(Conflict, match="switched off"):
            webhooks.ping(session, actor, endpoint_id)


def test_a_delivery_that_does_not_exist_is_not_found(database: Database, actor: Actor) -> None:
    with database.workspace_scope(actor) as session:
        for call in (webhooks.replay_delivery, webhooks_log.get_delivery):
            with pytest.raises(NotFound):
                call(session, actor, uuid4())
