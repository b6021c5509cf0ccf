"""Every model of the registry, with a small checkpoint of its real parts, against diffusers alone.

Each case is one task of one model. `tests/model_table.py` makes docs/models.md of the results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.engine import Engine
from engine.segments import run_segment
from engine.states import LatentState
from engine.types import GenerationRequest, GenerationResult, QualityProfile
from tests import family_cases
from tests.family_cases import Case

CASES = family_cases.all_cases()
# The tests of one case run one after another, so its model is loaded once.
by_case = pytest.mark.parametrize("case", CASES, ids=str, scope="module")
STEPS = family_cases.STEPS


@pytest.fixture(autouse=True)
def registry_of_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    family_cases.use_small_models(monkeypatch)


@pytest.fixture(scope="module")
def engines() -> Iterator[family_cases.Engines]:
    yield family_cases.Engines()


def _rendered(engine: Engine, request: GenerationRequest, **options: Any) -> GenerationResult:
    outcome = next(engine.generate([request], **options))
    assert isinstance(outcome, GenerationResult), outcome
    return outcome


@by_case
def test_tree_exact_equals_diffusers(case: Case, engines: family_cases.Engines) -> None:
    request = case.request()
    result = _rendered(engines.of(case), request)
    frames, audio = family_cases.render_plainly(case, request)
    assert np.array_equal(result.frames, frames)
    assert (result.audio is None) == (audio is None)
    if result.audio is not None and audio is not None:
        assert np.array_equal(result.audio.samples, audio)
    assert result.provenance["rendered_as"] == "exact"
    height, width = request.settings.height, request.settings.width
    assert result.frames.shape == (request.settings.num_frames, height, width, 3)
    assert result.frames.std() > 0


@by_case
def test_segments_exact_equal_the_uncut_run(case: Case, engines: family_cases.Engines) -> None:
    runner = engines.runner(case)
    request = case.request()
    conditioning = family_cases.condition(runner, request)

    def run(stops: tuple[int, ...]) -> LatentState:
        state = None
        for stop in stops:
            call = runner.prepare(request, conditioning)
            generator = torch.Generator("cpu").manual_seed(request.seed)
            state = run_segment(
                call.pipeline,
                stop=stop,
                state=state,
                generator=generator,
                first_step=call.first_step,
                **call.arguments,
            )
        assert state is not None
        return state

    whole = run((STEPS,))
    # With two experts the boundary lies within the first segment.
    for cut in ((3, STEPS), tuple(range(1, STEPS + 1))):
        assert torch.equal(run(cut).latents, whole.latents)
    config = runner._main.transformer.config
    tokens = runner.by_token(whole.latents, request)
    assert tokens.shape[:2] in {(1, config.in_channels), (1, config.get("out_channels"))}


@by_case
def test_a_cancelled_render_stops_between_steps(case: Case, engines: family_cases.Engines) -> None:
    steps: list[int] = []
    outcome = next(
        engines.of(case).generate(
            [case.request(seed=99)],
            on_progress=lambda progress: steps.append(progress.step),
            should_cancel=lambda _: len(steps) == 2,
        )
    )
    assert getattr(outcome, "code", None) == "cancelled"
    assert steps == [1, 2]


@by_case
def test_lora_changes_the_output_and_leaves_no_trace(
    case: Case, engines: family_cases.Engines, tmp_path: Path
) -> None:
    engine, request = engines.of(case), case.request()
    plain = _rendered(engine, request)
    loras = [
        family_cases.write_lora(case, tmp_path / f"{seed}.safetensors", seed) for seed in (1, 2)
    ]
    first = _rendered(engine, replace(request, loras=(loras[0],)))
    other = _rendered(engine, replace(request, loras=(loras[1],)))
    weak = _rendered(engine, replace(request, loras=(replace(loras[0], weight=0.0),)))
    assert not np.array_equal(first.frames, plain.frames)
    assert not np.array_equal(first.frames, other.frames)
    assert np.array_equal(weak.frames, plain.frames)
    assert np.array_equal(_rendered(engine, request).frames, plain.frames)


@by_case
def test_variants_share_steps(case: Case, engines: family_cases.Engines) -> None:
    family = [
        replace(request, settings=replace(request.settings, profile=QualityProfile.DRAFT))
        for request in case.family()
    ]
    results = list(engines.of(case).generate(family))
    assert all(isinstance(result, GenerationResult) for result in results), results
    assert len({result.frames.tobytes() for result in results}) == len(family)
    edges = [result.provenance["edges"] for result in results]
    assert any(len(each) > 1 for each in edges)
