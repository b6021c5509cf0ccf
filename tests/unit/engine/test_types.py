"""Requests and settings as values that go through JSON and back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import CheckpointError, EngineError, InvalidRequest, OutOfMemory
from engine.registry import default_settings
from engine.types import GenerationFailure, GenerationTask, PromptSlot, QualityProfile
from engine.types import RenderSettings as Settings


def test_settings_survive_json() -> None:
    settings = default_settings("adloom-tiny", profile=QualityProfile.CONSISTENT)
    restored = Settings.from_dict(json.loads(json.dumps(settings.to_dict())))
    assert restored == settings
    assert isinstance(restored.task, GenerationTask)
    assert isinstance(restored.profile, QualityProfile)


def test_a_slot_survives_json() -> None:
    slot = PromptSlot(name="place", kind="geography", value="Paris", span=(2, 7))
    assert PromptSlot.from_dict(json.loads(json.dumps(slot.to_dict()))) == slot


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"task": "v2v"}, "task"), ({"profile": "best"}, "profile"), ({"colour": 1}, "colour")],
)
def test_unreadable_settings_name_the_field(changes: dict[str, object], field: str) -> None:
    data = default_settings("adloom-tiny").to_dict() | changes
    with pytest.raises(InvalidRequest) as caught:
        Settings.from_dict(data)
    assert caught.value.field == field


def test_missing_settings_name_the_field() -> None:
    data = default_settings("adloom-tiny").to_dict()
    del data["fps"]
    with pytest.raises(InvalidRequest, match="fps"):
        Settings.from_dict(data)


def test_a_failure_keeps_the_errors_code_and_whether_to_retry(tmp_path: Path) -> None:
    memory = GenerationFailure.from_error("a", OutOfMemory("cpu", "no memory"))
    assert (memory.code, memory.is_retryable) == ("out_of_memory", True)
    broken = GenerationFailure.from_error("b", CheckpointError(tmp_path, "is gone."))
    assert (broken.code, broken.is_retryable) == ("checkpoint_error", False)
    assert str(tmp_path) in broken.message


def test_every_error_has_its_own_code() -> None:
    def tree(error: type[EngineError]) -> list[type[EngineError]]:
        return [error, *(leaf for child in error.__subclasses__() for leaf in tree(child))]

    codes = [error.code for error in tree(EngineError)]
    assert len(codes) == len(set(codes))


def test_the_torch_free_face_loads_no_torch() -> None:
    code = (
        "import sys, engine, engine.types, engine.registry, engine.plan, engine.errors,"
        " engine.config, engine.checkpoint;"
        "heavy = {'torch', 'diffusers', 'transformers', 'numpy', 'av'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
