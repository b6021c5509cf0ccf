"""A stored generation that goes on with another prompt: what is equal, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine.engine
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import InvalidRequest
from engine.suspending import StateFile, Suspension
from engine.types import GenerationRequest, GenerationResult, QualityProfile
from tests.unit.engine.conftest import MakeRequest

STEPS = 6


@pytest.fixture(scope="module")
def renderer(model_dir: Path) -> Engine:
    return Engine(EngineConfig(model_dir=model_dir, device="cpu", cache_bytes=0))


@pytest.fixture
def request_of(make_request: MakeRequest) -> Callable[..., GenerationRequest]:
    def make(prompt: str = "a red sneaker", **changes: Any) -> GenerationRequest:
        return make_request(prompt, **({"num_inference_steps": STEPS} | changes))

    return make


def _render(renderer: Engine, request: GenerationRequest) -> GenerationResult:
    (result,) = renderer.generate([request])
    assert isinstance(result, GenerationResult)
    return result


@pytest.mark.parametrize("profile", [QualityProfile.EXACT, QualityProfile.FAST])
def test_the_same_prompt_gives_the_uncut_run_bit_for_bit(
    renderer: Engine,
    request_of: Callable[..., GenerationRequest],
    tmp_path: Path,
    profile: QualityProfile,
) -> None:
    request = request_of(profile=profile)
    renderer.run_until(request, step=4).save(tmp_path / "state")
    outcome = renderer.redirect(StateFile.load(tmp_path / "state"), request)
    assert isinstance(outcome, GenerationResult)
    whole = _render(renderer, request)
    np.testing.assert_array_equal(outcome.frames, whole.frames)
    assert outcome.forwards_computed == whole.forwards_computed
    assert "redirected" not in outcome.provenance


def test_another_prompt_decides_what_comes_after_the_step(
    renderer: Engine, request_of: Callable[..., GenerationRequest]
) -> None:
    first, second = request_of(), request_of("a blue backpack in the snow")
    wholes = [_render(renderer, each).frames.astype(int) for each in (first, second)]
    distances = []
    for step in (1, 5):
        outcome = renderer.redirect(renderer.run_until(first, step=step), second)
        assert isinstance(outcome, GenerationResult)
        assert outcome.provenance["rendered_as"] == "redirected"
        assert outcome.provenance["redirected"] == {
            "from_step": step,
            "prompt_before": "a red sneaker",
        }
        distances.append([float(np.abs(outcome.frames - whole).mean()) for whole in wholes])
    (early_first, early_second), (late_first, late_second) = distances
    assert 0 < early_second < early_first
    assert 0 < late_first < late_second


def test_a_running_generation_is_stopped_and_redirected(
    renderer: Engine, request_of: Callable[..., GenerationRequest]
) -> None:
    heard: list[int] = []
    suspension = Suspension(lambda: len(heard) >= 3)
    (failure,) = renderer.generate(
        [request_of()], on_progress=lambda each: heard.append(each.step), suspension=suspension
    )
    assert failure.code == "suspended"  # type: ignore[union-attr]
    assert suspension.left_open is not None
    outcome = renderer.redirect(suspension.left_open, request_of("a blue mug"))
    assert isinstance(outcome, GenerationResult)
    assert outcome.provenance["redirected"]["from_step"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 8}, "made with seed 7, and 8"),
        ({"width": 160, "height": 160}, "made with width 224, and 160"),
        ({"num_inference_steps": 8}, "num_inference_steps 6, and 8"),
        ({"guidance_scale": 2.0}, "guidance_scale 4.0, and 2.0"),
        ({"negative_prompt": "rain"}, "negative_prompt '', and 'rain'"),
        ({"profile": QualityProfile.FAST}, "profile 'exact', and 'fast'"),
    ],
)
def test_a_state_of_another_request_is_refused(
    renderer: Engine,
    request_of: Callable[..., GenerationRequest],
    changes: dict[str, Any],
    message: str,
) -> None:
    state = renderer.run_until(request_of(), step=2)
    with pytest.raises(InvalidRequest, match=message):
        renderer.redirect(state, request_of("a blue mug", **changes))


def test_a_state_of_other_weights_solver_or_version_is_refused(
    renderer: Engine,
    request_of: Callable[..., GenerationRequest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = renderer.run_until(request_of(), step=2)
    for name in ("weights_fingerprint", "solver", "model_id"):
        other = replace(state, facts=dict(state.facts) | {name: "other"})
        with pytest.raises(InvalidRequest, match=f"{name} was other, and is "):
            renderer.redirect(other, request_of("a blue mug"))
    monkeypatch.setattr(engine.engine, "ENGINE_VERSION", "later")
    with pytest.raises(InvalidRequest, match="engine_version was 1, and is later"):
        renderer.redirect(state, request_of("a blue mug"))


@pytest.mark.parametrize("step", [0, STEPS])
def test_a_step_that_is_not_between_two_others_is_refused(
    renderer: Engine, request_of: Callable[..., GenerationRequest], step: int
) -> None:
    with pytest.raises(InvalidRequest, match=f"after step 1 to 5, not {step}"):
        renderer.run_until(request_of(), step=step)
