"""Models in memory: which stay, which go, and parts that wait in host memory."""

from __future__ import annotations

import importlib.util
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.memory import MemoryPlan, WeightPrecision
from engine.registry import default_settings
from engine.types import GenerationFailure, GenerationRequest, GenerationResult
from tests.checkpoints import random_model_dir
from tests.small_checkpoints import small_model, small_model_dir

TINY, WAN = "adloom-tiny", "wan2.1-t2v-1.3b"


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the small checkpoints of two models."""
    small = small_model(WAN)
    from engine import registry

    monkeypatch.setattr("engine.registry._MODELS", {**registry._MODELS, WAN: small})
    (tmp_path / "tiny").symlink_to(random_model_dir() / "tiny")
    (tmp_path / WAN).symlink_to(small_model_dir() / WAN)
    return tmp_path


def _request(model_id: str) -> GenerationRequest:
    settings = replace(default_settings(model_id), num_frames=5, num_inference_steps=2)
    return GenerationRequest(request_id="r", prompt="a red shoe", seed=1, settings=settings)


def _render(engine: Engine, model_id: str) -> GenerationResult:
    (outcome,) = engine.generate([_request(model_id)])
    assert isinstance(outcome, GenerationResult), outcome
    return outcome


def _engine(folder: Path, **changes: Any) -> Engine:
    return Engine(EngineConfig(model_dir=folder, device="cpu", cache_bytes=0, **changes))


def test_models_that_fit_together_stay_loaded(both: Path) -> None:
    engine = _engine(both, model_bytes=1 << 30)
    _render(engine, TINY)
    first = engine.models.get(TINY)
    _render(engine, WAN)
    assert engine.models.get(TINY) is first
    assert WAN in engine.models


def test_models_that_do_not_fit_together_take_turns_and_leave_nothing_behind(both: Path) -> None:
    engine = _engine(both, model_bytes=1 << 30)
    sizes = {}
    for model_id in (TINY, WAN):
        before = engine.models.size_bytes
        engine.models.get(model_id)
        sizes[model_id] = engine.models.size_bytes - before
    limit = max(sizes.values())
    assert limit > 100_000
    engine = _engine(both, model_bytes=limit)
    frames: dict[str, list[Any]] = {TINY: [], WAN: []}
    gone: list[weakref.ref[torch.nn.Module]] = []
    for model_id in (TINY, WAN) * 3:
        frames[model_id].append(_render(engine, model_id).frames)
        assert engine.models.size_bytes == sizes[model_id] <= limit
        # Whatever was loaded before, none of its weights is held by anybody.
        assert [held for held in gone if held() is not None] == []
        parts = engine.models.get(model_id).model.runner.parts
        gone += [weakref.ref(parts[name]) for name in ("transformer", "text_encoder", "vae")]
        del parts
    for results in frames.values():
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])


def test_a_model_that_is_larger_than_the_limit_is_kept_alone(both: Path) -> None:
    engine = _engine(both, model_bytes=1)
    for model_id in (TINY, WAN):
        _render(engine, model_id)
        assert [each for each in (TINY, WAN) if each in engine.models] == [model_id]


@pytest.fixture
def render_with(
    both: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[MemoryPlan], GenerationResult]:
    """Renders as on a GPU with little memory, with the CPU in its place."""

    def render(plan: MemoryPlan) -> GenerationResult:
        engine = _engine(both, dtype="bfloat16")
        placement = replace(engine.models._placement, memory=plan)
        monkeypatch.setattr(engine.models, "_place", lambda model_id: placement)
        return _render(engine, WAN)

    return render


PLAN = MemoryPlan(
    weights=WeightPrecision.FULL,
    offloaded=("text_encoder", "transformer"),
    is_tiled=False,
    peak_bytes=1,
    fits=True,
    reason="Because.",
)


def test_parts_that_wait_in_host_memory_change_no_pixel(
    both: Path, render_with: Callable[[MemoryPlan], GenerationResult]
) -> None:
    plain = _render(_engine(both, dtype="bfloat16"), WAN)
    waiting = render_with(PLAN)
    np.testing.assert_array_equal(plain.frames, waiting.frames)
    assert "memory" not in plain.provenance
    assert waiting.provenance["memory"]["offloaded"] == ("text_encoder", "transformer")
    assert waiting.provenance["memory"]["reason"] == "Because."
    assert waiting.provenance["rendered_as"] == "exact"


def test_a_vae_in_tiles_is_no_longer_called_exact(
    render_with: Callable[[MemoryPlan], GenerationResult],
) -> None:
    tiled = render_with(replace(PLAN, is_tiled=True))
    assert tiled.provenance["rendered_as"] == "exact, in less memory"


@pytest.mark.skipif(importlib.util.find_spec("torchao") is not None, reason="torchao is installed")
def test_rounded_weights_without_torchao_say_what_to_install(
    both: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = _engine(both)
    plan = replace(PLAN, weights=WeightPrecision.INT8)
    placement = replace(engine.models._placement, memory=plan)
    monkeypatch.setattr(engine.models, "_place", lambda model_id: placement)
    (outcome,) = engine.generate([_request(WAN)])
    assert isinstance(outcome, GenerationFailure)
    assert "adloom[quantization]" in outcome.message


@pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")
@pytest.mark.parametrize("weights", [WeightPrecision.INT8, WeightPrecision.FP8])
def test_rounded_weights_render_nearly_the_same(
    both: Path,
    render_with: Callable[[MemoryPlan], GenerationResult],
    weights: WeightPrecision,
) -> None:
    plain = _render(_engine(both, dtype="bfloat16"), WAN).frames.astype(float)
    rounded = render_with(replace(PLAN, weights=weights, offloaded=("text_encoder",)))
    difference = np.abs(rounded.frames - plain)
    assert 0 < difference.mean() < 5
    assert rounded.provenance["dtype"] == f"bfloat16, {weights} weights"
    assert rounded.provenance["rendered_as"] == "exact, in less memory"
