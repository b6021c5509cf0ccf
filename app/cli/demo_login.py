"""The demo's workspace and the sign-in that leads to it, kept beside the data of this machine."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from app.access import Actor
from app.errors import Conflict, NotFound, Unauthenticated
from app.models import User
from app.services import workspaces
from app.stack.folder import StateFolder, write_private


@dataclass(frozen=True, kw_only=True)
class Login:
    """With which the demo's workspace is opened in the dashboard."""

    email: str
    password: str

    def __str__(self) -> str:
        return f"{self.email}, password {self.password}"


def open_workspace(session: Session, folder: StateFolder) -> tuple[Actor, Login]:
    """Sign in to the demo's workspace, which is made the first time."""
    found = _sign_in(session, folder)
    if found is None:
        # Also after the database was made anew, or the file was lost.
        found = _create_workspace(session)
        write_private(_path(folder), json.dumps(asdict(found[0])))
    login, user = found
    actor = workspaces.find_actor(session, user.id, user.session_version)
    if actor is None:
        raise NotFound(
            f"{login.email} has no workspace any more. Delete {_path(folder)} and start again."
        )
    return actor, login


def find_login(session: Session, folder: StateFolder) -> Login | None:
    """The demo's sign-in, if there was a demo here and it still works."""
    found = _sign_in(session, folder)
    return None if found is None else found[0]


def _sign_in(session: Session, folder: StateFolder) -> tuple[Login, User] | None:
    try:
        login = Login(**json.loads(_path(folder).read_text()))
        return login, workspaces.authenticate(session, login.email, login.password)
    except (OSError, ValueError, TypeError, Unauthenticated):
        return None


def _create_workspace(session: Session) -> tuple[Login, User]:
    password = secrets.token_urlsafe(12)
    for email in ("demo@example.com", f"demo-{secrets.token_hex(3)}@example.com"):
        try:
            _, owner = workspaces.create_workspace(
                session, name="Demo", owner_name="Demo", email=email, password=password
            )
        except Conflict:
            continue
        return Login(email=email, password=password), owner
    raise Conflict("The demo's account could not be made; try again.")


def _path(folder: StateFolder) -> Path:
    return folder.root / "demo.json"
