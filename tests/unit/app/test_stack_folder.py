"""The state folder: permissions, secrets, run folder, locks."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from app.errors import ConfigurationError, Conflict
from app.stack import folder as folder_module
from app.stack.folder import StateFolder


@pytest.fixture(autouse=True)
def run_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folder_module, "RUN_ROOT", tmp_path)
    return tmp_path


def test_secrets_are_generated_once_and_only_their_owner_may_read_them(tmp_path: Path) -> None:
    folder = StateFolder.create(tmp_path / "state")
    first = folder.secrets()
    assert folder.secrets() == first
    assert len(first.secret_key) >= 32
    assert stat.S_IMODE((folder.root / "secrets.json").stat().st_mode) == 0o600


def test_unreadable_secrets_are_reported_with_the_way_out(tmp_path: Path) -> None:
    folder = StateFolder.create(tmp_path / "state")
    (folder.root / "secrets.json").write_text("{broken")
    with pytest.raises(ConfigurationError, match=r"secrets\.json is damaged: .*Move it aside"):
        folder.secrets()


def test_the_socket_path_fits_however_deep_the_checkout_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    folder = StateFolder(tmp_path.joinpath(*["a-rather-long-folder-name"] * 8))
    assert len(str(folder.run / "pg" / ".s.PGSQL.5432")) < 104


def test_two_state_folders_never_share_a_run_folder(tmp_path: Path) -> None:
    one, two = (StateFolder.create(tmp_path / name) for name in ("one", "two"))
    assert one.run != two.run


def test_others_cannot_look_into_the_folders(tmp_path: Path) -> None:
    folder = StateFolder.create(tmp_path / "state")
    for path in (folder.root, folder.run):
        assert stat.S_IMODE(path.stat().st_mode) & 0o066 == 0
    assert stat.S_IMODE(folder.artifacts.stat().st_mode) & 0o077 == 0


def test_a_run_folder_planted_by_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.run.symlink_to(elsewhere)
    with pytest.raises(ConfigurationError, match="belongs to somebody else"):
        StateFolder.create(folder.root)


def test_a_state_folder_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(ConfigurationError, match="--state-dir or ADLOOM_STATE_DIR"):
        StateFolder.create(blocker / "state")


def test_a_lock_is_held_until_its_block_ends(tmp_path: Path) -> None:
    folder = StateFolder.create(tmp_path / "state")
    second = folder.lock("supervisor", wait=False)
    with folder.lock("supervisor"), pytest.raises(Conflict):
        second.__enter__()
    with folder.lock("supervisor", wait=False):
        pass
