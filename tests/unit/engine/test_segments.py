"""Segments of an unmodified pipeline equal its uncut run, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import (
    DPMSolverMultistepScheduler,
    FlowMatchEulerDiscreteScheduler,
    UniPCMultistepScheduler,
    WanPipeline,
)

from engine.errors import InvalidRequest
from engine.segments import initial_state, run_segment
from engine.states import stack_states
from engine.suspending import OpenEdge, StateFile
from tests.checkpoints import random_model_dir

STEPS = 6
CALL: dict[str, Any] = {
    "height": 64,
    "width": 64,
    "num_frames": 5,
    "num_inference_steps": STEPS,
    "guidance_scale": 4.0,
}
FLOW: dict[str, Any] = {
    "prediction_type": "flow_prediction",
    "use_flow_sigmas": True,
    "flow_shift": 3.0,
}
SOLVERS = {
    "euler": lambda: FlowMatchEulerDiscreteScheduler(shift=2.0),
    "unipc": lambda: UniPCMultistepScheduler(**FLOW),
    "dpm": lambda: DPMSolverMultistepScheduler(**FLOW),
}


@cache
def _loaded() -> WanPipeline:
    pipeline = WanPipeline.from_pretrained(random_model_dir() / "tiny")
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _pipeline(solver: str = "euler") -> WanPipeline:
    _loaded().scheduler = SOLVERS[solver]()
    return _loaded()


def _noise() -> torch.Generator:
    return torch.Generator("cpu").manual_seed(11)


def _uncut(pipeline: WanPipeline, prompt: str) -> torch.Tensor:
    latents: torch.Tensor = pipeline(
        prompt=prompt, generator=_noise(), output_type="latent", return_dict=False, **CALL
    )[0]
    return latents


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("cuts", [(2,), (1, 2, 3, 4, 5)], ids=str)
def test_segments_equal_the_uncut_run_bit_for_bit(solver: str, cuts: tuple[int, ...]) -> None:
    pipeline = _pipeline(solver)
    generator, state = _noise(), None
    for stop in (*cuts, STEPS):
        state = run_segment(
            pipeline, stop=stop, state=state, generator=generator, prompt="a red car", **CALL
        )
    assert state is not None
    assert torch.equal(state.latents, _uncut(pipeline, "a red car"))


@pytest.mark.parametrize("solver", ["euler", "unipc"])
def test_a_saved_state_is_continued_in_another_process(solver: str, tmp_path: Path) -> None:
    pipeline = _pipeline(solver)
    state = run_segment(pipeline, stop=3, generator=_noise(), prompt="a red car", **CALL)
    StateFile(facts={}, edges={"": OpenEdge(state=state)}).save(tmp_path / "state")
    # The checkpoint of this process is read by the other one: its folder lives until we end.
    program = f"""
import torch
from pathlib import Path
from diffusers import WanPipeline
from engine.segments import run_segment
from engine.suspending import OpenEdge, StateFile
from tests.unit.engine.test_segments import CALL, SOLVERS
torch.set_num_threads(1)
pipeline = WanPipeline.from_pretrained({str(random_model_dir() / "tiny")!r})
pipeline.scheduler = SOLVERS[{solver!r}]()
state = StateFile.load(Path({str(tmp_path / "state")!r})).edges[""].state
end = run_segment(pipeline, stop={STEPS}, state=state, prompt="a red car", **CALL)
StateFile(facts={{}}, edges={{"": OpenEdge(state=end)}}).save(Path({str(tmp_path / "end")!r}))
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=120)
    end = StateFile.load(tmp_path / "end").edges[""].state
    assert end is not None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert torch.equal(end.latents, _uncut(pipeline, "a red car"))
    finally:
        torch.set_num_threads(threads)


def test_a_running_generation_continues_with_another_prompt() -> None:
    pipeline = _pipeline()
    stem = run_segment(pipeline, stop=2, generator=_noise(), prompt="a car", **CALL)
    red = run_segment(pipeline, stop=STEPS, state=stem, prompt="a red car", **CALL)
    blue = run_segment(pipeline, stop=STEPS, state=stem, prompt="a blue car", **CALL)
    assert not torch.equal(red.latents, blue.latents)
    assert stem.step == 2


@pytest.mark.parametrize("solver", SOLVERS)
def test_rows_of_a_batch_go_on_from_their_own_states(solver: str) -> None:
    pipeline = _pipeline(solver)
    prompts = ["a red car", "a blue mug"]
    alone = [
        run_segment(pipeline, stop=3, generator=_noise(), prompt=prompt, **CALL)
        for prompt in prompts
    ]
    together = run_segment(pipeline, stop=STEPS, state=stack_states(alone), prompt=prompts, **CALL)
    for row, (state, prompt) in enumerate(zip(alone, prompts, strict=True)):
        expected = run_segment(pipeline, stop=STEPS, state=state, prompt=prompt, **CALL)
        end = together.row(row)
        assert end.latents.shape == expected.latents.shape
        torch.testing.assert_close(end.latents, expected.latents, atol=1e-4, rtol=1e-4)
        assert end.size_bytes == expected.size_bytes
    assert not torch.allclose(together.row(0).latents, together.row(1).latents, atol=1e-3)


def test_a_row_is_the_state_that_was_stacked() -> None:
    pipeline = _pipeline("unipc")
    states = [
        run_segment(pipeline, stop=3, generator=_noise(), prompt=prompt, **CALL)
        for prompt in ("a red car", "a blue mug")
    ]
    for row, state in enumerate(states):
        again = stack_states(states).row(row)
        assert torch.equal(again.latents, state.latents)
        ends = [
            run_segment(pipeline, stop=STEPS, state=each, prompt="a cup", **CALL)
            for each in (again, state)
        ]
        assert torch.equal(ends[0].latents, ends[1].latents)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_run_from_its_noise_equals_the_uncut_run_bit_for_bit(solver: str) -> None:
    pipeline = _pipeline(solver)
    noise = initial_state(pipeline, generator=_noise(), prompt="a cup", **CALL)
    assert noise.step == 0
    end = run_segment(pipeline, stop=STEPS, state=noise, prompt="a red car", **CALL)
    assert torch.equal(end.latents, _uncut(pipeline, "a red car"))


def test_the_pipeline_keeps_its_own_noise_scheduler() -> None:
    pipeline = _pipeline("unipc")
    before = pipeline.scheduler
    run_segment(pipeline, stop=2, generator=_noise(), prompt="a car", **CALL)
    assert pipeline.scheduler is before
    after_a_segment = _uncut(pipeline, "a car")
    assert torch.equal(after_a_segment, _uncut(_pipeline("unipc"), "a car"))


def test_a_segment_beyond_the_schedule_or_backwards_is_refused() -> None:
    pipeline = _pipeline()
    with pytest.raises(InvalidRequest, match="has 6 steps; 7 asked"):
        run_segment(pipeline, stop=7, generator=_noise(), prompt="a car", **CALL)
    state = run_segment(pipeline, stop=3, generator=_noise(), prompt="a car", **CALL)
    with pytest.raises(InvalidRequest, match="starts at 3, ends at 3"):
        run_segment(pipeline, stop=3, state=state, prompt="a car", **CALL)


def test_a_half_written_state_is_refused(tmp_path: Path) -> None:
    state = run_segment(_pipeline(), stop=1, generator=_noise(), prompt="a car", **CALL)
    path = tmp_path / "state"
    StateFile(facts={}, edges={"": OpenEdge(state=state)}).save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidRequest, match="no whole denoising state"):
        StateFile.load(path)
