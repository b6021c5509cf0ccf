"""The faster ways that profiles other than `exact` take: equal up to rounding, gone afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import WanPipeline
from numpy.typing import NDArray
from PIL import Image

from engine.caching.steps import _Line
from engine.config import EngineConfig
from engine.engine import Engine
from engine.pipelines.wan_blocks import FastTransformer
from engine.pipelines.wan_decoder import fast_decoder
from engine.types import (
    GenerationRequest,
    GenerationResult,
    GenerationTask,
    QualityProfile,
    StepCacheMethod,
    StepCachePolicy,
)
from tests.unit.engine.families import forked, variant

STEPS = 6
BACKDROPS = ("snow", "a beach", "a roof")


@pytest.fixture(scope="module")
def pipeline(model_dir: Path) -> WanPipeline:
    return WanPipeline.from_pretrained(model_dir / "tiny")


@pytest.fixture(scope="module")
def make_engine(model_dir: Path) -> Callable[..., Engine]:
    def make(**changes: Any) -> Engine:
        known: dict[str, Any] = {"model_dir": model_dir, "device": "cpu", "guard_every": 0}
        return Engine(EngineConfig(**(known | changes)))

    return make


def _family(**changes: Any) -> list[GenerationRequest]:
    return [forked(variant(name, steps=STEPS, **changes)) for name in BACKDROPS]


def _render(engine: Engine, requests: list[GenerationRequest]) -> dict[str, GenerationResult]:
    outcomes = list(engine.generate(requests))
    assert all(isinstance(outcome, GenerationResult) for outcome in outcomes), outcomes
    return {o.request_id: o for o in outcomes if isinstance(o, GenerationResult)}


def _psnr(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> float:
    error = np.mean((left.astype(np.float64) - right) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


def _ratio_db(left: torch.Tensor, right: torch.Tensor) -> float:
    """Signal to difference; float32 rounding alone gives some 120 dB."""
    return float(10 * torch.log10(left.square().mean() / (left - right).square().mean()))


def _forward(transformer: Any, *, timesteps: torch.Tensor, rows: int = 2) -> torch.Tensor:
    noise = torch.Generator().manual_seed(1)
    output: torch.Tensor = transformer(
        hidden_states=torch.randn(rows, 8, 2, 8, 10, generator=noise),
        timestep=timesteps.expand(rows, -1),
        encoder_hidden_states=torch.randn(rows, 12, 32, generator=noise),
        return_dict=False,
    )[0]
    return output


@pytest.mark.parametrize("first", [500.0, 0.0], ids=["one timestep", "a given first frame"])
@pytest.mark.parametrize(
    ("dtype", "least_db"), [(torch.float32, 100), (torch.bfloat16, 30)], ids=str
)
@torch.no_grad()
def test_fast_blocks_compute_what_diffusers_computes(
    pipeline: WanPipeline, dtype: torch.dtype, least_db: float, first: float
) -> None:
    timesteps = torch.full((40,), 500.0)
    timesteps[:20] = first
    exact = _forward(pipeline.transformer, timesteps=timesteps)
    with FastTransformer(pipeline.transformer, dtype=dtype).installed():
        fast = _forward(pipeline.transformer, timesteps=timesteps)
    assert least_db < _ratio_db(exact, fast) < 200
    assert torch.equal(exact, _forward(pipeline.transformer, timesteps=timesteps))


@torch.no_grad()
def test_fast_blocks_follow_prompt_and_size(pipeline: WanPipeline) -> None:
    """What is kept of one forward must not answer for another."""
    transformer = pipeline.transformer
    noise = torch.Generator().manual_seed(2)
    texts = [torch.randn(1, 12, 32, generator=noise) for _ in range(6)]
    latents = [torch.randn(1, 8, 1, *size, generator=noise) for size in ((8, 10), (10, 8))]
    calls = [
        {"hidden_states": latent, "timestep": torch.tensor([100.0]), "encoder_hidden_states": text}
        for latent in latents
        for text in (*texts, texts[0].expand(1, -1, -1))
    ]
    exact = [transformer(**call, return_dict=False)[0] for call in calls]
    with FastTransformer(transformer, dtype=torch.float32).installed():
        for call, expected in zip(calls, exact, strict=True):
            assert _ratio_db(expected, transformer(**call, return_dict=False)[0]) > 100


@torch.no_grad()
def test_rows_with_one_negative_prompt_are_the_same_as_with_copies_of_it(
    pipeline: WanPipeline,
) -> None:
    noise = torch.Generator().manual_seed(3)
    latents, text = torch.randn(3, 8, 1, 8, 10, generator=noise), torch.randn(1, 12, 32)
    with FastTransformer(pipeline.transformer, dtype=torch.float32).installed():
        one, copies = (
            pipeline.transformer(
                hidden_states=latents,
                timestep=torch.tensor([100.0]),
                encoder_hidden_states=each,
                return_dict=False,
            )[0]
            for each in (text.expand(3, -1, -1), text.repeat(3, 1, 1))
        )
    assert _ratio_db(copies, one) > 100


@torch.no_grad()
def test_the_fast_decoder_decodes_the_same_clip(pipeline: WanPipeline) -> None:
    latents = torch.randn(2, 8, 3, 4, 6, generator=torch.Generator().manual_seed(4))
    exact = pipeline.vae.decode(latents).sample
    fast = fast_decoder(pipeline.vae)
    assert fast.decoder is not pipeline.vae.decoder
    assert _ratio_db(exact, fast.decode(latents.bfloat16()).sample.float()) > 35
    assert torch.equal(exact, pipeline.vae.decode(latents).sample)


def test_siblings_in_a_batch_equal_the_single_render(make_engine: Callable[..., Engine]) -> None:
    policy = StepCachePolicy()
    together = _render(make_engine(fast_math=False, step_cache=policy), _family())
    exact = _render(make_engine(), _family(profile=QualityProfile.EXACT))
    for name, result in together.items():
        assert result.provenance["edges"][0]["batch"] == len(BACKDROPS)
        assert _psnr(result.frames, exact[name].frames) > 60


def test_fast_math_rounds_a_little_and_says_that_it_is_not_exact(
    make_engine: Callable[..., Engine],
) -> None:
    engine = make_engine(step_cache=StepCachePolicy())
    exact = _render(engine, _family(profile=QualityProfile.EXACT))
    fast = _render(engine, _family())
    for name, result in fast.items():
        assert _psnr(result.frames, exact[name].frames) > 30
        assert result.provenance["rendered_as"] == "consistent"
    again = _render(engine, _family(profile=QualityProfile.EXACT))
    for name, result in again.items():
        np.testing.assert_array_equal(result.frames, exact[name].frames)
        assert result.provenance["rendered_as"] == "exact"


def test_a_clip_that_cannot_be_decoded_with_others_is_decoded_alone(
    make_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(step_cache=StepCachePolicy())
    expected = _render(engine, _family())
    runner = engine.models.get("adloom-tiny").model.runner
    decode, sizes = runner.decode_fast, []

    def little_memory(latents: torch.Tensor) -> NDArray[np.uint8]:
        sizes.append(len(latents))
        if len(latents) > 1:
            raise torch.OutOfMemoryError("too much")
        return decode(latents)

    monkeypatch.setattr(runner, "decode_fast", little_memory)
    results = _render(engine, _family())
    assert sizes == [3, 1, 1, 1]
    for name, result in results.items():
        assert _psnr(result.frames, expected[name].frames) > 40


def test_image_to_video_takes_the_fast_way_too(
    make_engine: Callable[..., Engine], tmp_path: Path
) -> None:
    path = tmp_path / "first.png"
    Image.fromarray(np.full((128, 224, 3), (200, 40, 40), np.uint8)).save(path)
    engine = make_engine(step_cache=StepCachePolicy())
    base = variant("snow", steps=3)
    settings = replace(base.settings, task=GenerationTask.I2V)
    request = forked(replace(base, settings=settings, references=(path,)))
    exact = replace(request, settings=replace(settings, profile=QualityProfile.EXACT))
    (fast,), (plain,) = _render(engine, [request]).values(), _render(engine, [exact]).values()
    assert _psnr(fast.frames, plain.frames) > 30


def test_extrapolation_computes_the_steps_it_says_and_no_others(
    make_engine: Callable[..., Engine],
) -> None:
    policy = StepCachePolicy(method=StepCacheMethod.EXTRAPOLATION, interval=3, full_steps=0.25)
    engine = make_engine(step_cache=policy, batch_size=1)
    (result,) = _render(engine, [forked(variant("snow", steps=12))]).values()
    # Steps 0 to 2, then 5, 8 and 11; two forwards each.
    assert result.forwards_computed == 12
    assert result.provenance["forwards"]["saved"] == {"extrapolation": 12}


def test_after_a_fork_the_first_two_steps_are_computed(make_engine: Callable[..., Engine]) -> None:
    policy = StepCachePolicy(method=StepCacheMethod.EXTRAPOLATION, interval=12, full_steps=0)
    engine = make_engine(step_cache=policy, batch_size=1, cache_bytes=0)
    requests = [forked(variant(name, steps=12), backdrop=4) for name in BACKDROPS[:2]]
    results = _render(engine, requests)
    # Steps 0 and 1 of the stem; 4, 5 and the last one of each variant.
    assert sum(each.forwards_computed for each in results.values()) == 2 * (2 + 2 * 3)


def test_a_prediction_that_changes_evenly_is_extrapolated_exactly() -> None:
    line = _Line()
    start, slope = torch.randn(3, 4), torch.randn(3, 4)
    for time in (1000.0, 900.0, 850.0):
        line.add(time, start + slope * time / 1000)
    torch.testing.assert_close(line.at(600.0), start + slope * 0.6)
