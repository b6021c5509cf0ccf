"""`adloom doctor`: what is wrong is found, named and comes with the way out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.stack.folder import StateFolder
from app.stack.losses import find_lost_database
from tests.checkpoints import random_model_dir
from tests.command_line import Command


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
