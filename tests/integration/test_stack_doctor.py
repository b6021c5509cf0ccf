"""`adloom doctor`: what is wrong is found, named and comes with the way out."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from app.config import Config
from app.db import Database
from app.stack.doctor import Check, Health, examine
from app.stack.environment import Address
from app.stack.folder import StateFolder
from app.stack.losses import find_lost_database
from app.storage import Storage
from tests.checkpoints import random_model_dir
from tests.command_line import Command
from tests.integration.gallery_tools import launch, render
from tests.web import Browser


@pytest.fixture(autouse=True)
def known_folder(adloom: Command) -> StateFolder:
    """What an Adloom that was started here has left."""
    return StateFolder.create(adloom.state_dir)


def test_doctor_fails_on_missing_weights_and_says_how_to_mend_it(
    adloom: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(tmp_path))
    (tmp_path / "tiny").mkdir()
    result = adloom.run("doctor")
    assert result.exit_code == 1
    assert "✗ Model weights" in result.output
    assert "ADLOOM_MODEL_DIR" in result.output


def test_doctor_finds_nothing_wrong_with_a_stopped_installation(
    adloom: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(random_model_dir()))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(adloom.state_dir.parent)
    result = adloom.run("doctor")
    assert result.exit_code == 0, result.output
    # The words can be typed as they stand: this program is not where a shell looks for it.
    program = Path(sys.executable).with_name("adloom")
    words = " ".join(result.output.split())
    assert f"Start Adloom with `{program} up --state-dir {adloom.state_dir}`" in words


def test_doctor_finds_a_damaged_database_and_says_what_the_way_out_costs(
    adloom: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(random_model_dir()))
    (adloom.state_dir / "postgres").mkdir(parents=True)
    result = adloom.run("doctor")
    assert result.exit_code == 1
    assert "✗ Postgres" in result.output
    words = " ".join(result.output.split())
    assert "PG_VERSION is missing" in words
    assert "Move it aside" in words
    assert "artifacts/ remain" in words


def test_a_database_that_was_moved_away_is_missed_and_the_way_back_named(
    adloom: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(random_model_dir()))
    assert "missing" not in adloom.run("migrate").output, "a new folder misses nothing"
    assert adloom.run("down").exit_code == 0
    place, moved = adloom.state_dir / "postgres", adloom.state_dir / "old-records"
    place.rename(moved)
    doctor = adloom.run("doctor")
    assert doctor.exit_code == 1
    again = adloom.run("migrate")
    for output in (doctor.output, again.output):
        words = " ".join(output.split())
        assert f"there is no {place}" in words
        assert f"`mv {moved} {place}`" in words
        assert "empty database" in words
    assert again.exit_code == 0, "it goes on all the same"
    assert "missing" not in adloom.run("doctor").output


def test_a_database_outside_is_no_missing_one(
    adloom: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = StateFolder.create(adloom.state_dir)
    (folder.artifacts / "video.mp4").write_bytes(b"video")
    assert find_lost_database(folder) is not None
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(random_model_dir()))
    monkeypatch.setenv("DATABASE_URL", "postgresql://adloom@127.0.0.1:1/adloom")
    assert "The database is missing" not in adloom.run("doctor").output


def test_doctor_reports_an_outside_database_that_cannot_be_reached(
    adloom: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(random_model_dir()))
    monkeypatch.setenv("DATABASE_URL", "postgresql://adloom@127.0.0.1:1/adloom")
    result = adloom.run("doctor")
    assert result.exit_code == 1
    assert "✗ Postgres" in result.output
    assert "Check DATABASE_URL" in result.output


def test_doctor_warns_of_private_networks_that_webhooks_may_reach(
    adloom: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(random_model_dir()))
    assert "Webhooks" not in adloom.run("doctor").output
    monkeypatch.setenv("WEBHOOK_ALLOWED_NETWORKS", "127.0.0.0/8")
    result = adloom.run("doctor")
    assert result.exit_code == 0, result.output
    assert "! Webhooks" in result.output
    assert "127.0.0.0/8" in result.output
    assert "Unset WEBHOOK_ALLOWED_NETWORKS" in result.output


@pytest.mark.parametrize("is_there", [False, True])
def test_a_folder_without_adloom_is_named_and_left_as_it_is(
    adloom: Command, tmp_path: Path, is_there: bool
) -> None:
    place = tmp_path / "nope" / "state"
    if is_there:
        place.mkdir(parents=True)
        (place / "notes.txt").write_text("mine")
        place.chmod(0o755)
    elsewhere = Command(place, adloom.port)
    doctor, down = elsewhere.run("doctor"), elsewhere.run("down")
    assert doctor.exit_code == 1
    assert str(place) in doctor.output
    assert "Start Adloom once with" in doctor.output
    assert f"up --state-dir {place}" in doctor.output
    assert (down.exit_code, down.output) == (0, "Nothing was running.\n")
    assert not StateFolder.at(place).run.exists()
    if is_there:
        assert [path.name for path in place.iterdir()] == ["notes.txt"]
        assert place.stat().st_mode & 0o777 == 0o755
    else:
        assert not place.parent.exists()


def test_doctor_looks_without_making_secrets(adloom: Command, known_folder: StateFolder) -> None:
    adloom.run("doctor")
    assert not known_folder.has_secrets


def test_doctor_says_in_the_words_of_up_who_holds_the_port(
    adloom: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(random_model_dir()))
    monkeypatch.setenv("COLUMNS", "300")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", adloom.port))
        holder.listen()
        doctor, up = adloom.run("doctor"), adloom.run("up")
    words = up.output.strip().removeprefix("adloom: ")
    reason, _, remedy = words.partition(". ")
    assert f"Port {adloom.port} is already in use" in reason
    assert doctor.exit_code == 1
    for part in (reason, remedy):
        assert part in " ".join(doctor.output.split())


def test_damaged_secrets_hide_no_other_check(
    adloom: Command, known_folder: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(random_model_dir()))
    (known_folder.root / "secrets.json").write_text("{half")
    doctor = adloom.run("doctor")
    assert doctor.exit_code == 1
    assert "✗ Secrets" in doctor.output
    assert "Everybody has to sign in again" in " ".join(doctor.output.split())
    for subject in ("Postgres", "Model weights", "Artifact store"):
        assert subject in doctor.output


@pytest.mark.usefixtures("weights")
def test_doctor_misses_the_files_of_the_newest_renders(
    config: Config,
    editor: Browser,
    database: Database,
    storage: Storage,
    tmp_path: Path,
    known_folder: StateFolder,
) -> None:
    environ = {
        "DATABASE_URL": config.database_url,
        "REDIS_URL": config.redis_url,
        "STORAGE_URL": config.storage_url,
        "ADLOOM_SECRET_KEY": config.secret_key,
    }

    def look() -> Check:
        checks = examine(known_folder, environ, Address(host="127.0.0.1", port=1))
        return next(check for check in checks if check.subject == "Newest files")

    assert look() == Check("Newest files", Health.OK, "none yet")
    render(database, storage, tmp_path, launch(editor))
    assert look().detail == "6 looked at, all there"
    storage.delete(next(key for key in storage.iter_keys("media/") if key.endswith(".mp4")))
    storage.delete(next(key for key in storage.iter_keys("media/") if key.endswith(".anim.webp")))
    found = look()
    assert found.health is Health.WRONG
    assert "of the 6 newest renders lack files" in found.detail
    assert "media/" in found.detail
    assert "export page" in found.remedy
