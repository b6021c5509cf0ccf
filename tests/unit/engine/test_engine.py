"""Rendering with the engine: equal to diffusers, one by one, each failing or cancelled alone."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import UniPCMultistepScheduler, WanPipeline
from PIL import Image
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import ConfigError
from engine.registry import default_settings, weights_fingerprint
from engine.types import (
    ENGINE_VERSION,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    GenerationTask,
    Progress,
)
from tests.checkpoints import write_checkpoint
from tests.unit.engine.plain import render_plainly

MakeRequest = Callable[..., GenerationRequest]


@pytest.fixture(scope="module")
def engine(model_dir: Path) -> Engine:
    return Engine(EngineConfig(model_dir=model_dir, device="cpu"))


@pytest.fixture(scope="module")
def reference_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("references") / "first.png"
    pixels = np.random.default_rng(0).integers(0, 255, (128, 224, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def _render(engine: Engine, request: GenerationRequest) -> GenerationResult:
    (outcome,) = engine.generate([request])
    assert isinstance(outcome, GenerationResult), outcome
    return outcome


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"negative_prompt": "blur", "num_inference_steps": 4},
        {"guidance_scale": 1.0},
        {"width": 128, "height": 160, "num_frames": 9},
        {"task": GenerationTask.T2I},
    ],
    ids=["t2v", "negative prompt", "no guidance", "4:5", "t2i"],
)
def test_exact_is_bit_equal_to_plain_diffusers(
    engine: Engine, model_dir: Path, make_request: MakeRequest, changes: dict[str, Any]
) -> None:
    request = make_request(**changes)
    frames = _render(engine, request).frames
    expected = render_plainly(model_dir / "tiny", request)
    assert frames.dtype == np.uint8
    assert frames.std() > 1
    np.testing.assert_array_equal(frames, expected)


def test_image_to_video_is_bit_equal_to_plain_diffusers(
    engine: Engine, model_dir: Path, make_request: MakeRequest, reference_image: Path
) -> None:
    request = make_request(task=GenerationTask.I2V, references=(reference_image,))
    expected = render_plainly(model_dir / "tiny", request)
    np.testing.assert_array_equal(_render(engine, request).frames, expected)


def test_a_multistep_solver_is_bit_equal_to_plain_diffusers(
    tmp_path: Path, make_request: MakeRequest
) -> None:
    write_checkpoint(tmp_path / "tiny")
    pipeline = WanPipeline.from_pretrained(tmp_path / "tiny")
    pipeline.scheduler = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=2.0
    )
    pipeline.save_pretrained(tmp_path / "tiny")
    engine = Engine(EngineConfig(model_dir=tmp_path, device="cpu"))
    requests = [make_request(num_inference_steps=4, seed=seed) for seed in (1, 2)]
    for request in requests:
        result = _render(engine, request)
        np.testing.assert_array_equal(result.frames, render_plainly(tmp_path / "tiny", request))
        assert result.provenance["solver"] == "UniPCMultistepScheduler"


def test_a_result_does_not_depend_on_what_was_rendered_before(
    engine: Engine, make_request: MakeRequest, reference_image: Path
) -> None:
    request = make_request()
    before = _render(engine, request).frames
    _render(engine, make_request(task=GenerationTask.I2V, references=(reference_image,)))
    _render(engine, make_request(num_inference_steps=3))
    np.testing.assert_array_equal(_render(engine, request).frames, before)


def test_prompt_and_seed_change_the_frames(engine: Engine, make_request: MakeRequest) -> None:
    control = _render(engine, make_request()).frames
    for changes in ({"prompt": "a blue mug in tokyo"}, {"seed": 8}):
        assert not np.array_equal(_render(engine, make_request(**changes)).frames, control)


def test_each_step_is_reported(engine: Engine, make_request: MakeRequest) -> None:
    seen: list[Progress] = []
    request = make_request(num_inference_steps=3)
    list(engine.generate([request], on_progress=seen.append))
    assert seen == [Progress(request_id="r0", step=step, num_steps=3) for step in (1, 2, 3)]


def test_a_cancelled_request_stops_at_its_step_and_the_next_one_is_whole(
    engine: Engine, make_request: MakeRequest
) -> None:
    first, second = make_request(num_inference_steps=4), make_request(seed=2)
    expected = _render(engine, second).frames
    steps: list[tuple[str, int]] = []
    outcomes = list(
        engine.generate(
            [first, second],
            on_progress=lambda progress: steps.append((progress.request_id, progress.step)),
            should_cancel=lambda request_id: request_id == "r0" and len(steps) == 2,
        )
    )
    failure, result = outcomes
    assert isinstance(failure, GenerationFailure)
    assert (failure.request_id, failure.code) == ("r0", "cancelled")
    assert steps == [("r0", 1), ("r0", 2), ("r1", 1), ("r1", 2)]
    assert isinstance(result, GenerationResult)
    np.testing.assert_array_equal(result.frames, expected)


def test_a_request_cancelled_beforehand_computes_nothing(
    engine: Engine, make_request: MakeRequest
) -> None:
    steps: list[Progress] = []
    (outcome,) = engine.generate(
        [make_request()], on_progress=steps.append, should_cancel=lambda _: True
    )
    assert isinstance(outcome, GenerationFailure)
    assert (outcome.code, steps) == ("cancelled", [])


def test_a_bad_request_fails_alone(engine: Engine, make_request: MakeRequest) -> None:
    requests = [
        make_request(),
        make_request(width=1, height=1),
        make_request(task=GenerationTask.I2V, references=(Path("/nowhere.png"),)),
        make_request(seed=9),
        make_request(model_id="other"),
    ]
    outcomes = {outcome.request_id: outcome for outcome in engine.generate(requests)}
    assert isinstance(outcomes["r0"], GenerationResult)
    assert isinstance(outcomes["r3"], GenerationResult)
    codes = {
        name: outcome.code
        for name, outcome in outcomes.items()
        if isinstance(outcome, GenerationFailure)
    }
    assert codes == {"r1": "invalid_request", "r2": "invalid_request", "r4": "unknown_model"}


def test_a_request_id_given_twice_is_refused(engine: Engine, make_request: MakeRequest) -> None:
    request = make_request()
    outcomes = list(engine.generate([request, replace(request, seed=3)]))
    failure, result = outcomes
    assert isinstance(failure, GenerationFailure)
    assert "given twice" in failure.message
    assert isinstance(result, GenerationResult)
    assert result.provenance["seed"] == request.seed


def test_results_come_one_by_one(engine: Engine, make_request: MakeRequest) -> None:
    steps: list[Progress] = []
    outcomes = engine.generate([make_request(), make_request(seed=2)], on_progress=steps.append)
    next(outcomes)
    assert {progress.request_id for progress in steps} == {"r0"}
    next(outcomes)
    assert next(outcomes, None) is None


def test_equal_pixels_are_rendered_once(engine: Engine, make_request: MakeRequest) -> None:
    steps: list[Progress] = []
    first, other, twin = make_request(), make_request("a mug"), make_request(fps=24)
    outcomes = {
        outcome.request_id: outcome
        for outcome in engine.generate([first, other, twin], on_progress=steps.append)
    }
    original, copy = outcomes["r0"], outcomes["r2"]
    assert isinstance(original, GenerationResult)
    assert isinstance(copy, GenerationResult)
    np.testing.assert_array_equal(copy.frames, original.frames)
    # Whoever waits for the same render hears of its steps, and each of them once.
    assert Counter(progress.request_id for progress in steps) == {"r0": 2, "r1": 2, "r2": 2}
    assert (copy.fps, copy.forwards_computed) == (24, 0)
    assert copy.provenance["reused_from"] == "r0"
    assert "reused_from" not in original.provenance


def test_a_twin_is_rendered_when_the_first_one_failed(
    engine: Engine, make_request: MakeRequest
) -> None:
    outcomes = list(
        engine.generate(
            [make_request(), make_request()], should_cancel=lambda request_id: request_id == "r0"
        )
    )
    assert isinstance(outcomes[0], GenerationFailure)
    assert isinstance(outcomes[1], GenerationResult)
    assert outcomes[1].forwards_computed == 4


def test_a_result_says_how_it_came_about(
    engine: Engine, model_dir: Path, make_request: MakeRequest
) -> None:
    result = _render(engine, make_request(profile="consistent", num_inference_steps=3))
    assert result.forwards_computed == 6
    assert result.provenance["rendered_as"] == "consistent"
    assert result.provenance["profile"] == "consistent"
    assert result.provenance["engine_version"] == ENGINE_VERSION
    fingerprint = weights_fingerprint("adloom-tiny", model_dir=model_dir)
    assert result.provenance["weights_fingerprint"] == fingerprint
    seconds = result.seconds
    assert min(seconds.text, seconds.denoise, seconds.decode) > 0


def test_missing_weights_fail_each_request_with_the_way_out(
    tmp_path: Path, make_request: MakeRequest
) -> None:
    engine = Engine(EngineConfig(model_dir=tmp_path, device="cpu"))
    settings = default_settings("wan2.1-t2v-1.3b")
    requests = [make_request(settings=settings, seed=seed) for seed in (1, 2)]
    outcomes = list(engine.generate(requests))
    assert [outcome.request_id for outcome in outcomes] == ["r0", "r1"]
    for outcome in outcomes:
        assert isinstance(outcome, GenerationFailure)
        assert outcome.code == "checkpoint_error"
        assert "adloom models pull wan2.1-t2v-1.3b" in outcome.message


def _damage(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], Any], part: str = "transformer"
) -> None:
    (path,) = (folder / part).glob("*.safetensors")
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.fixture
def damaged(model_dir: Path, tmp_path: Path) -> Iterator[tuple[Path, Engine]]:
    folder = shutil.copytree(model_dir / "tiny", tmp_path / "tiny")
    yield folder, Engine(EngineConfig(model_dir=tmp_path, device="cpu"))


def _only_failure(engine: Engine, request: GenerationRequest) -> GenerationFailure:
    (outcome,) = engine.generate([request])
    assert isinstance(outcome, GenerationFailure)
    return outcome


def test_weights_of_another_shape_are_refused(
    damaged: tuple[Path, Engine], make_request: MakeRequest
) -> None:
    folder, engine = damaged
    _damage(folder, lambda tensors: tensors.update({"proj_out.weight": torch.zeros(3, 3)}))
    failure = _only_failure(engine, make_request())
    assert failure.code == "checkpoint_error"
    assert str(folder) in failure.message


@pytest.mark.parametrize(
    ("part", "weight"),
    [
        ("transformer", "blocks.1.ffn.net.2.weight"),
        ("text_encoder", "encoder.final_layer_norm.weight"),
        ("vae", "quant_conv.bias"),
    ],
)
def test_a_part_that_lacks_a_weight_is_refused(
    damaged: tuple[Path, Engine], make_request: MakeRequest, part: str, weight: str
) -> None:
    folder, engine = damaged
    _damage(folder, lambda tensors: tensors.pop(weight), part)
    failure = _only_failure(engine, make_request())
    assert failure.code == "checkpoint_error"
    assert failure.message.startswith(f"{folder / part}: lacks 1 of ")
    assert weight in failure.message


def test_weights_that_compute_nan_are_not_delivered(
    damaged: tuple[Path, Engine], make_request: MakeRequest
) -> None:
    folder, engine = damaged
    _damage(folder, lambda tensors: tensors["proj_out.bias"].fill_(float("nan")))
    failure = _only_failure(engine, make_request())
    assert failure.code == "non_finite_output"
    assert "the denoise stage computed NaN or infinity in float32" in failure.message
    assert str(folder) in failure.message


def test_a_decoder_that_computes_nan_is_not_delivered(
    damaged: tuple[Path, Engine], make_request: MakeRequest
) -> None:
    folder, engine = damaged
    _damage(folder, lambda tensors: tensors["decoder.conv_out.bias"].fill_(float("nan")), "vae")
    failure = _only_failure(engine, make_request())
    assert failure.code == "non_finite_output"
    assert "the decode stage" in failure.message


def test_running_out_of_memory_is_said_and_may_be_retried(
    engine: Engine, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The allocator's own error, raised by asking for more than any machine has.
    def too_much(*_: object, **__: object) -> None:
        torch.empty(2**50)

    monkeypatch.setattr("engine.edge_runner.run_segment", too_much)
    failure = _only_failure(engine, make_request())
    assert (failure.code, failure.is_retryable) == ("out_of_memory", True)


def test_an_unforeseen_error_fails_its_request_alone(
    engine: Engine, make_request: MakeRequest
) -> None:
    def on_progress(progress: Progress) -> None:
        if progress.request_id == "r0":
            raise ZeroDivisionError("in the middle")

    outcomes = list(
        engine.generate([make_request(), make_request(seed=2)], on_progress=on_progress)
    )
    assert isinstance(outcomes[0], GenerationFailure)
    assert (outcomes[0].code, outcomes[0].is_retryable) == ("render_error", True)
    assert isinstance(outcomes[1], GenerationResult)


def test_half_precision_renders_about_the_same_picture(
    engine: Engine, model_dir: Path, make_request: MakeRequest
) -> None:
    config = EngineConfig(model_dir=model_dir, device="cpu", dtype="bfloat16")
    half = _render(Engine(config), make_request())
    full = _render(engine, make_request())
    assert half.provenance["dtype"] == "bfloat16"
    difference = half.frames.astype(float) - full.frames
    assert 0 < np.abs(difference).mean() < 4


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match="ADLOOM_DEVICE"):
        Engine(EngineConfig(device=device))


def test_the_configured_threads_are_used(model_dir: Path) -> None:
    before = torch.get_num_threads()
    try:
        engine = Engine(EngineConfig(model_dir=model_dir, device="cpu", torch_threads=2))
        assert torch.get_num_threads() == 2
        assert engine.device_kind.endswith("2 threads")
    finally:
        torch.set_num_threads(before)


def test_the_package_hands_out_the_engine_lazily() -> None:
    import engine as package

    assert package.Engine is Engine
    with pytest.raises(AttributeError, match="Motor"):
        _ = package.Motor
