"""What `adloom up` says about signing in, and the demo's workspace behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli.demo_login import find_login, open_workspace
from app.cli.run import sign_in_hint
from app.config import Config
from app.db import Database
from app.models import User
from app.services import workspaces
from app.services.passwords import hash_password
from app.stack import folder as folder_module
from app.stack.folder import StateFolder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setattr(folder_module, "RUN_ROOT", tmp_path)
    return StateFolder.create(tmp_path / "state")


def test_a_first_run_is_told_how_to_make_a_workspace(config: Config, folder: StateFolder) -> None:
    assert "adloom create-workspace" in sign_in_hint(config, folder)


def test_the_demo_login_is_told_while_it_works(
    config: Config, database: Database, folder: StateFolder
) -> None:
    with database.system_scope() as session:
        actor, login = open_workspace(session, folder)
    assert sign_in_hint(config, folder) == f"Sign in to the demo: {login}"
    with database.system_scope() as session:
        assert open_workspace(session, folder) == (actor, login), "the second time it is found"
        user = workspaces.authenticate(session, login.email, login.password)
        session.get_one(User, user.id).password_hash = hash_password("changed since the demo")
    assert sign_in_hint(config, folder) == ""


def test_a_lost_note_of_the_demo_login_makes_another_workspace(
    database: Database, folder: StateFolder
) -> None:
    with database.system_scope() as session:
        first, login = open_workspace(session, folder)
        (folder.root / "demo.json").write_text("{")
        assert find_login(session, folder) is None
        second, other = open_workspace(session, folder)
    assert (login.email, other.email[:5]) == ("demo@example.com", "demo-")
    assert first.workspace_id != second.workspace_id
