"""Workspaces and the people in them: set-up, sign-in, and who acts behind a session."""

from __future__ import annotations

import re
import secrets
import unicodedata
from typing import Final
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.access import Actor, Role
from app.errors import Conflict, InvalidInput, Unauthenticated
from app.models import Membership, User, Workspace
from app.services.passwords import hash_password, needs_rehash, verify_password

MAX_NAME_LENGTH: Final = 120
MAX_EMAIL_LENGTH: Final = 320
MAX_SLUG_LENGTH: Final = 60

# The mail server knows what is right; this catches typing errors.
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(?:\.[^@\s.]+)*")


def create_workspace(
    session: Session, *, name: str, owner_name: str, email: str, password: str
) -> tuple[Workspace, User]:
    """Make a workspace with its owner (system session).

    InvalidInput names the field that is wrong; Conflict when the address has an account already.
    """
    name = _check_name(name, field="workspace_name", label="workspace")
    owner_name = _check_name(owner_name, field="owner_name", label="owner")
    email = normalise_email(email)
    password_hash = hash_password(password)
    workspace = Workspace(name=name, slug=_free_slug(session, name))
    owner = User(email=email, name=owner_name, password_hash=password_hash)
    try:
        with session.begin_nested():
            session.add_all([workspace, owner])
            session.flush()
    except IntegrityError as error:
        raise _taken(email) from error
    session.add(Membership(workspace_id=workspace.id, user_id=owner.id, role=Role.OWNER))
    session.flush()
    return workspace, owner


def check_new_account(session: Session, email: str) -> None:
    """InvalidInput when this is no address, Conflict when it has an account (system session)."""
    taken = select(User.id).where(func.lower(User.email) == normalise_email(email))
    if session.scalar(taken) is not None:
        raise _taken(email)


def has_any_workspace(session: Session) -> bool:
    """Whether the first-run set-up is done (system session)."""
    return session.scalar(select(Workspace.id).limit(1)) is not None


def authenticate(session: Session, email: str, password: str) -> User:
    """The person behind an address and a password (system session).

    Unauthenticated says the same, after the same time, for an unknown address and a wrong
    password.
    """
    user = session.scalars(select(User).where(func.lower(User.email) == _fold(email))).one_or_none()
    if not verify_password(user.password_hash if user else None, password) or user is None:
        raise Unauthenticated("The address or the password is wrong.")
    if needs_rehash(user.password_hash):
        user.password_hash = hash_password(password)
    return user


def find_actor(session: Session, user_id: UUID, session_version: int) -> Actor | None:
    """Who acts behind a session cookie (system session).

    None after a sign-out everywhere, or when the person has no workspace any more. Whoever is
    in several workspaces acts in the one joined first.
    """
    membership = session.scalars(
        select(Membership)
        .join(User, User.id == Membership.user_id)
        .where(User.id == user_id, User.session_version == session_version)
        .order_by(Membership.created_at, Membership.id)
        .limit(1)
    ).one_or_none()
    if membership is None:
        return None
    return Actor(
        workspace_id=membership.workspace_id, role=membership.role, user_id=membership.user_id
    )


def _taken(email: str) -> Conflict:
    return Conflict(
        f"There is an account for {email} already. Sign in with it, or use another address.",
        field="email",
    )


def sign_out_everywhere(session: Session, user_id: UUID) -> None:
    """End all sessions of a person (system session)."""
    user = session.get_one(User, user_id)
    user.session_version += 1
    session.flush()


def normalise_email(email: str) -> str:
    """The address in the one spelling that is kept; InvalidInput when it is none."""
    folded = _fold(email)
    if len(folded) > MAX_EMAIL_LENGTH or not _EMAIL.fullmatch(folded) or not folded.isprintable():
        raise InvalidInput(
            f"{email.strip()[:80]!r} is not an email address; it should look like"
            " name@example.com.",
            field="email",
        )
    return folded


def _fold(email: str) -> str:
    return unicodedata.normalize("NFKC", email).strip().lower().replace("\0", "")


def _check_name(text: str, *, field: str, label: str) -> str:
    name = " ".join(text.split())
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidInput(
            f"Give the {label} a name of up to {MAX_NAME_LENGTH} characters.", field=field
        )
    return name


def _free_slug(session: Session, name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MAX_SLUG_LENGTH] or "workspace"
    is_taken = session.scalar(select(Workspace.id).where(Workspace.slug == slug)) is not None
    return f"{slug}-{secrets.token_hex(3)}" if is_taken else slug
