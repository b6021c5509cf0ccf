"""Rendering from a checkpoint that was pulled: from the locked commit, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import EngineConfig, HubConfig
from engine.engine import Engine
from engine.pulling import pull
from engine.registry import default_settings, get_model
from engine.types import GenerationFailure, GenerationRequest, GenerationResult
from tests.hub_double import hub_double
from tests.small_checkpoints import small_model, small_model_dir

MODEL = "wan2.1-t2v-1.3b"


@pytest.fixture
def request_for_it(monkeypatch: pytest.MonkeyPatch) -> GenerationRequest:
    small = small_model(MODEL)
    monkeypatch.setattr("engine.registry._MODELS", {MODEL: small})
    settings = replace(default_settings(MODEL), num_frames=5, num_inference_steps=2)
    return GenerationRequest(request_id="r", prompt="a shoe", seed=1, settings=settings)


def test_the_engine_renders_from_the_locked_commit_and_says_which(
    request_for_it: GenerationRequest, tmp_path: Path
) -> None:
    folder = small_model_dir() / MODEL
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    spec = get_model(MODEL)
    assert spec.hub_id is not None
    with hub_double() as hub:
        commit = hub.publish(spec.hub_id, files)
        pulled = pull(spec, model_dir=tmp_path, hub=HubConfig(endpoint=hub.url))
    engine = Engine(EngineConfig(model_dir=tmp_path, device="cpu"))
    (outcome,) = engine.generate([request_for_it])
    assert isinstance(outcome, GenerationResult), outcome
    assert outcome.provenance["weights_revision"] == commit
    # What is cut off later is said, with the command that mends it, before anything is loaded.
    (weights,) = (pulled.folder / "vae").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    (outcome,) = Engine(EngineConfig(model_dir=tmp_path, device="cpu")).generate([request_for_it])
    assert isinstance(outcome, GenerationFailure)
    assert f"Mend it: adloom models pull {MODEL}" in outcome.message
