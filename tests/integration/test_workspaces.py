"""Workspaces, sign-in and API keys on a real database."""

from __future__ import annotations

import statistics
import time
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import func, select

from app.access import Action, Actor, Role
from app.db import Database
from app.errors import Conflict, Forbidden, InvalidInput, NotFound, Unauthenticated
from app.models import ApiKey, User, Workspace
from app.models.base import new_id
from app.services import api_keys, workspaces
from app.services.passwords import hash_password, verify_password
from tests.factories import make_user, make_workspace

PASSWORD = "correct horse battery"


def create(database: Database, **changes: str) -> tuple[Workspace, User]:
    values = {
        "name": "Northwind",
        "owner_name": "Ada",
        "email": "ada@example.com",
        "password": PASSWORD,
    } | changes
    with database.system_scope() as session:
        return workspaces.create_workspace(session, **values)


def test_the_first_workspace_ends_the_set_up_and_its_owner_can_sign_in(
    database: Database,
) -> None:
    with database.system_scope() as session:
        assert not workspaces.has_any_workspace(session)
    workspace, owner = create(database, email="  Ada@Example.COM ")
    assert (workspace.slug, owner.email) == ("northwind", "ada@example.com")
    with database.system_scope() as session:
        assert workspaces.has_any_workspace(session)
        assert workspaces.authenticate(session, "ADA@example.com ", PASSWORD).id == owner.id
        actor = workspaces.find_actor(session, owner.id, owner.session_version)
    assert actor == Actor(workspace_id=workspace.id, role=Role.OWNER, user_id=owner.id)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", "   ", "Give the workspace a name"),
        ("owner_name", "x" * 121, "Give the owner a name"),
        ("email", "ada", "'ada' is not an email address"),
        ("email", "ada@", "not an email address"),
        ("email", "a b@example.com", "not an email address"),
        ("password", "short one", "9 characters; use at least 10"),
        ("password", "x" * 1_001, "1,001 characters"),
    ],
)
def test_wrong_input_is_named_and_leaves_nothing_behind(
    database: Database, field: str, value: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        create(database, **{field: value})
    assert caught.value.field == {"name": "workspace_name"}.get(field, field)
    with database.system_scope() as session:
        assert session.scalar(select(func.count(Workspace.id))) == 0
        assert session.scalar(select(func.count(User.id))) == 0


def test_an_address_has_one_account(database: Database) -> None:
    create(database)
    with pytest.raises(Conflict, match=r"an account for ada@example\.com already") as caught:
        create(database, email="ADA@example.com")
    assert caught.value.field == "email"
    with database.system_scope() as session:
        assert session.scalar(select(func.count(Workspace.id))) == 1


def test_two_workspaces_of_one_name_get_different_slugs(database: Database) -> None:
    first, _ = create(database, name="Café Größe & Co.")
    second, _ = create(database, name="Café Größe & Co.", email="bob@example.com")
    assert first.slug == "cafe-groe-co"
    assert second.slug.startswith("cafe-groe-co-")


@pytest.mark.parametrize(
    ("email", "password"),
    [
        ("ada@example.com", PASSWORD + "r"),
        ("eve@example.com", PASSWORD),
        ("", ""),
        ("ada@example.com\0", "x"),
    ],
)
def test_a_wrong_address_and_a_wrong_password_get_the_same_answer(
    database: Database, email: str, password: str
) -> None:
    create(database)
    with (
        pytest.raises(Unauthenticated, match="The address or the password is wrong"),
        database.system_scope() as session,
    ):
        workspaces.authenticate(session, email, password)


def test_an_unknown_address_takes_as_long_as_a_wrong_password(database: Database) -> None:
    create(database)

    def seconds(email: str) -> float:
        started = time.perf_counter()
        with pytest.raises(Unauthenticated), database.system_scope() as session:
            workspaces.authenticate(session, email, "not the password")
        return time.perf_counter() - started

    seconds("ada@example.com")
    known = statistics.median(seconds("ada@example.com") for _ in range(7))
    unknown = statistics.median(seconds("eve@example.com") for _ in range(7))
    # Without the decoy the unknown address is answered some fifty times faster.
    assert 0.5 < unknown / known < 2


def test_an_old_hash_is_renewed_at_sign_in(database: Database) -> None:
    from argon2 import PasswordHasher

    _, owner = create(database)
    old = PasswordHasher(memory_cost=8 * 1024, time_cost=1, parallelism=1).hash(PASSWORD)
    with database.system_scope() as session:
        session.get_one(User, owner.id).password_hash = old
    with database.system_scope() as session:
        workspaces.authenticate(session, "ada@example.com", PASSWORD)
    with database.system_scope() as session:
        renewed = session.get_one(User, owner.id).password_hash
    assert renewed != old
    assert verify_password(renewed, PASSWORD)


def test_hashes_are_argon2id_and_salted() -> None:
    assert hash_password(PASSWORD).startswith("$argon2id$")
    assert hash_password(PASSWORD) != hash_password(PASSWORD)


def test_signing_out_everywhere_ends_old_sessions(database: Database) -> None:
    _, owner = create(database)
    with database.system_scope() as session:
        workspaces.sign_out_everywhere(session, owner.id)
        assert workspaces.find_actor(session, owner.id, 1) is None
        assert workspaces.find_actor(session, owner.id, 2) is not None
        assert workspaces.find_actor(session, new_id(), 1) is None


def test_a_person_without_a_membership_is_nobody(database: Database) -> None:
    with database.system_scope() as session:
        user = make_user(session)
        assert workspaces.find_actor(session, user.id, user.session_version) is None


def issue(database: Database, actor: Actor, **options: object) -> tuple[ApiKey, str]:
    with database.workspace_scope(actor) as session:
        return api_keys.issue_api_key(session, actor, name="CI", **options)


def find(database: Database, secret: str) -> ApiKey | None:
    with database.system_scope() as session:
        return api_keys.find_api_key(session, secret)


def test_a_key_is_found_by_its_secret_and_only_its_hash_is_kept(
    database: Database, actor: Actor
) -> None:
    key, secret = issue(database, actor, role=Role.VIEWER, scopes=[Action.VIEW])
    assert secret.startswith("adl_")
    assert secret.startswith(key.prefix)
    found = find(database, secret)
    assert found is not None
    assert found.last_used_at is not None
    assert secret not in {found.prefix, found.key_sha256}
    assert api_keys.actor_of_key(found) == Actor(
        workspace_id=actor.workspace_id,
        role=Role.VIEWER,
        api_key_id=key.id,
        scopes=frozenset({Action.VIEW}),
    )


def test_a_key_without_scopes_may_do_all_that_its_role_allows(
    database: Database, actor: Actor
) -> None:
    key, _ = issue(database, actor)
    acting = api_keys.actor_of_key(key)
    assert acting.may(Action.LAUNCH)
    assert not acting.may(Action.MANAGE)


def test_a_mistyped_key_is_told_by_its_checksum(database: Database, actor: Actor) -> None:
    _, secret = issue(database, actor)
    wrong = secret[:-8] + ("0" if secret[-8] != "0" else "1") + secret[-7:]
    assert not api_keys.has_valid_checksum(wrong)
    assert not api_keys.has_valid_checksum("adl_")
    assert not api_keys.has_valid_checksum("")
    assert find(database, wrong) is None


def test_a_forged_key_with_a_right_checksum_and_a_known_prefix_is_refused(
    database: Database, actor: Actor
) -> None:
    key, secret = issue(database, actor)
    body = key.prefix + "A" * api_keys.RANDOM_LENGTH
    forged = body + api_keys._checksum(body)
    assert len(forged) == len(secret)
    assert api_keys.has_valid_checksum(forged)
    assert find(database, forged) is None


def test_expired_and_revoked_keys_are_refused(database: Database, actor: Actor) -> None:
    with database.system_scope() as session:
        now = session.scalars(select(func.now())).one()
    _, expired = issue(database, actor, expires_at=now - timedelta(seconds=1))
    key, revoked = issue(database, actor, expires_at=now + timedelta(hours=1))
    assert find(database, expired) is None
    assert find(database, revoked) is not None
    with database.workspace_scope(actor) as session:
        api_keys.revoke_api_key(session, actor, key.id)
    assert find(database, revoked) is None


def test_only_an_owner_issues_lists_and_revokes_keys(database: Database, actor: Actor) -> None:
    key, _ = issue(database, actor)
    editor = Actor(workspace_id=actor.workspace_id, role=Role.EDITOR)
    with database.workspace_scope(editor) as session:
        for call in (
            lambda: api_keys.issue_api_key(session, editor, name="x"),
            lambda: api_keys.list_api_keys(session, editor),
            lambda: api_keys.revoke_api_key(session, editor, key.id),
        ):
            with pytest.raises(Forbidden):
                call()


def test_keys_of_another_workspace_are_out_of_reach(database: Database, actor: Actor) -> None:
    key, _ = issue(database, actor)
    with database.system_scope() as session:
        other = Actor(workspace_id=make_workspace(session).id, role=Role.OWNER)
    with database.workspace_scope(other) as session:
        assert api_keys.list_api_keys(session, other) == []
        with pytest.raises(NotFound):
            api_keys.revoke_api_key(session, other, UUID(str(key.id)))
    with database.workspace_scope(actor) as session:
        assert [item.id for item in api_keys.list_api_keys(session, actor)] == [key.id]
