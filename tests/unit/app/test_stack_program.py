"""The command that Adloom tells people to type is one that works for them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.stack.program import command

PROGRAM = Path(sys.executable).with_name("adloom")


@pytest.fixture(autouse=True)
def no_state_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADLOOM_STATE_DIR", raising=False)


def test_a_program_that_the_shell_finds_goes_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(PROGRAM.parent))
    assert command("up") == "adloom up"


def test_another_program_of_that_name_is_not_taken_for_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "adloom"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert command("up") == f"{PROGRAM} up"


def test_the_path_is_as_short_as_the_reader_can_type_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(PROGRAM.parent.parent)
    assert command("down") == "bin/adloom down"


def test_a_state_folder_that_is_not_the_usual_one_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(PROGRAM.parent))
    assert command("up", state_dir=tmp_path) == f"adloom up --state-dir {tmp_path}"
    monkeypatch.setenv("ADLOOM_STATE_DIR", str(tmp_path))
    assert command("up", state_dir=tmp_path) == "adloom up"
