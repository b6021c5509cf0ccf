"""Who is behind a request: the session cookie, sign-in and sign-out; for the API its key."""

from __future__ import annotations

from uuid import UUID

from flask import g, session
from sqlalchemy.orm import Session

from app.access import Actor
from app.errors import Unauthenticated
from app.services import api_keys, workspaces

_USER = "user_id"
_VERSION = "session_version"


def sign_in(*, user_id: UUID, session_version: int) -> None:
    """Start a fresh session: nothing of the one before, the CSRF secret included, lives on."""
    session.clear()
    session[_USER] = str(user_id)
    session[_VERSION] = session_version
    session.permanent = True


def sign_out() -> None:
    session.clear()


def find_current_actor(database_session: Session) -> Actor | None:
    """The actor of the session cookie, read once per request; None when nobody is signed in.

    `database_session` is a system one: the workspace is not known before the actor is.
    """
    if "actor" not in g:
        g.actor = _read_actor(database_session)
    actor: Actor | None = g.actor
    return actor


def actor_of_key(database_session: Session, authorization: str) -> Actor:
    """The actor of an `Authorization: Bearer …` header (system session); cookies count nothing."""
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated("Send your API key in the header “Authorization: Bearer adl_…”.")
    key = api_keys.find_api_key(database_session, secret.strip())
    if key is None:
        raise Unauthenticated("This API key is wrong, expired or revoked.")
    return api_keys.actor_of_key(key)


def _read_actor(database_session: Session) -> Actor | None:
    user_id, version = session.get(_USER), session.get(_VERSION)
    if not isinstance(user_id, str) or not isinstance(version, int):
        return None
    actor = workspaces.find_actor(database_session, UUID(user_id), version)
    if actor is None:
        # Signed out elsewhere, or the membership ended.
        session.clear()
    return actor
