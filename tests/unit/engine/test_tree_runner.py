"""Rendering a family as a tree: what is shared, batched, kept, spared, and what fails alone."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import WanPipeline
from numpy.typing import NDArray

from engine.config import EngineConfig
from engine.engine import Engine
from engine.plan import plan
from engine.segments import run_segment
from engine.states import LatentState
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Progress,
    QualityProfile,
    StemConditioning,
    StepCacheMethod,
    StepCachePolicy,
)
from tests.unit.engine.families import forked, variant

STEPS = 6
# Forwards of one render alone.
FULL = 2 * STEPS


@pytest.fixture(scope="module")
def make_engine(model_dir: Path) -> Callable[..., Engine]:
    """Engines that keep nothing from test to test, unless the limit says so."""

    def make(**changes: Any) -> Engine:
        known: dict[str, Any] = {
            "model_dir": model_dir,
            "device": "cpu",
            "cache_bytes": 0,
            "guard_every": 0,
            "fast_math": False,
        }
        return Engine(EngineConfig(**(known | changes)))

    return make


@pytest.fixture(scope="module")
def one_by_one(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine(batch_size=1)


@pytest.fixture(scope="module")
def batched(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine(batch_size=4)


def _family(
    backdrops: Sequence[str] = ("snow", "a beach"),
    places: Sequence[str] = ("Paris", "Rio"),
    **changes: Any,
) -> list[GenerationRequest]:
    """Backdrops fork at step 2, places at step 4 of 6."""
    return [
        forked(variant(backdrop, place=place, steps=STEPS, **changes), backdrop=2, place=4)
        for backdrop, place in product(backdrops, places)
    ]


def _render(
    engine: Engine, requests: Iterable[GenerationRequest], **callbacks: Any
) -> dict[str, GenerationResult]:
    outcomes = list(engine.generate(requests, **callbacks))
    assert all(isinstance(outcome, GenerationResult) for outcome in outcomes), outcomes
    return {o.request_id: o for o in outcomes if isinstance(o, GenerationResult)}


def _split(
    engine: Engine, requests: Iterable[GenerationRequest], **callbacks: Any
) -> tuple[dict[str, GenerationResult], dict[str, GenerationFailure]]:
    outcomes = list(engine.generate(requests, **callbacks))
    return (
        {o.request_id: o for o in outcomes if isinstance(o, GenerationResult)},
        {o.request_id: o for o in outcomes if isinstance(o, GenerationFailure)},
    )


def _num_states() -> int:
    gc.collect()
    return sum(type(each) is LatentState for each in gc.get_objects())


def _psnr(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> float:
    error = np.mean((left.astype(np.float64) - right) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


def _computed(results: dict[str, GenerationResult]) -> float:
    return sum(result.forwards_computed for result in results.values())


def test_a_tree_equals_segments_run_by_hand_bit_for_bit(
    one_by_one: Engine, model_dir: Path
) -> None:
    results = _render(one_by_one, _family())
    pipeline = WanPipeline.from_pretrained(model_dir / "tiny")
    pipeline.set_progress_bar_config(disable=True)
    settings = _family()[0].settings
    call: dict[str, Any] = {
        "height": settings.height,
        "width": settings.width,
        "num_frames": settings.num_frames,
        "num_inference_steps": STEPS,
        "guidance_scale": settings.guidance_scale,
        "max_sequence_length": 64,
    }
    noise = torch.Generator("cpu").manual_seed(7)
    prompt = "a red sneaker on, for runners"
    root = run_segment(pipeline, stop=2, generator=noise, prompt=prompt, **call)
    for backdrop in ("snow", "a beach"):
        prompt = f"a red sneaker on {backdrop}, for runners"
        branch = run_segment(pipeline, stop=4, state=root, prompt=prompt, **call)
        for place in ("Paris", "Rio"):
            whole = f"{prompt}, {place}"
            leaf = run_segment(pipeline, stop=STEPS, state=branch, prompt=whole, **call)
            frames = one_by_one._runners["adloom-tiny"].model.runner.decode(
                leaf.latents, _family()[0]
            )
            np.testing.assert_array_equal(results[f"{backdrop}/runners/{place}"].frames, frames)


def test_batched_edges_equal_single_ones_up_to_rounding(
    one_by_one: Engine, batched: Engine
) -> None:
    single, together = _render(one_by_one, _family()), _render(batched, _family())
    for name, result in together.items():
        assert _psnr(result.frames, single[name].frames) > 60
        assert [edge["batch"] for edge in result.provenance["edges"]] == [1, 2, 4]
        assert result.provenance["rendered_as"] == "consistent"


def test_branches_that_share_no_steps_start_from_the_same_noise(
    make_engine: Callable[..., Engine],
) -> None:
    requests = [forked(request) for request in _family()]
    alone, together = (
        _render(make_engine(batch_size=size, step_cache=StepCachePolicy()), requests)
        for size in (1, 4)
    )
    for name, result in together.items():
        assert alone[name].provenance["rendered_as"] == "exact"
        assert result.provenance["edges"][0]["batch"] == 4
        assert _psnr(result.frames, alone[name].frames) > 60


def test_exact_variants_are_never_batched_and_equal_a_render_alone(batched: Engine) -> None:
    requests = [
        variant(backdrop, steps=STEPS, profile=QualityProfile.EXACT)
        for backdrop in ("snow", "a beach")
    ]
    for name, result in _render(batched, requests).items():
        (alone,) = [request for request in requests if request.request_id == name]
        np.testing.assert_array_equal(result.frames, _render(batched, [alone])[name].frames)
        assert result.provenance["rendered_as"] == "exact"
        assert (result.forwards_computed, result.provenance["forwards"]["saved"]) == (FULL, {})


def test_what_a_tree_takes_is_what_was_planned(one_by_one: Engine) -> None:
    requests = _family()
    (group,) = plan(requests).groups
    results = _render(one_by_one, requests)
    # A root of 2 steps, two branches of 2, four leaves of 2; two forwards each.
    assert _computed(results) == pytest.approx(2 * (2 + 2 * 2 + 4 * 2))
    for member in group.members:
        result = results[member.request_id]
        assert result.work_units == pytest.approx(member.shared_units)
        forwards = result.provenance["forwards"]
        assert forwards["computed"] + sum(forwards["saved"].values()) == pytest.approx(FULL)
        assert [(e["start"], e["stop"]) for e in result.provenance["edges"]] == [
            (0, 2),
            (2, 4),
            (4, 6),
        ]


def test_siblings_compute_the_unconditional_branch_once_where_they_fork(batched: Engine) -> None:
    results = _render(batched, _family())
    # One row instead of two where the backdrops fork, two instead of four where the places do.
    assert _computed(results) == pytest.approx(2 * (2 + 2 * 2 + 4 * 2) - 1 - 2)
    for result in results.values():
        forwards = result.provenance["forwards"]
        assert forwards["saved"]["unconditional"] == pytest.approx(1 / 2 + 2 / 4)
        assert forwards["computed"] + sum(forwards["saved"].values()) == pytest.approx(FULL)


def test_one_subtree_is_finished_before_the_next_one_begins(one_by_one: Engine) -> None:
    steps: list[Progress] = []
    outcomes = one_by_one.generate(_family(), on_progress=steps.append)
    next(outcomes)
    begun = {each.request_id.split("/")[0] for each in steps if each.step > 2}
    assert len(begun) == 1
    assert max(each.step for each in steps if each.request_id.startswith("snow")) == 2


def test_states_are_held_only_as_long_as_their_children_wait(
    make_engine: Callable[..., Engine],
) -> None:
    engine, held = make_engine(batch_size=2), []
    requests = _family(backdrops=("snow", "a beach", "a roof", "a lake"))

    before = _num_states()

    def count(progress: Progress) -> None:
        if progress.step == STEPS:
            held.append(_num_states() - before)

    _render(engine, requests, on_progress=count)
    # The root's state while two backdrops wait, two backdrops', and the stack of a batch of leaves.
    assert max(held) == 4
    assert _num_states() == before


def test_each_request_hears_of_each_of_its_steps_once(batched: Engine) -> None:
    steps: list[Progress] = []
    _render(batched, _family(), on_progress=steps.append)
    for request in _family():
        seen = [each.step for each in steps if each.request_id == request.request_id]
        assert seen == [1, 2, 3, 4, 5, 6]


def test_a_cancelled_sibling_leaves_the_others_as_they_are(batched: Engine) -> None:
    expected = _render(batched, _family())
    steps: list[Progress] = []
    gone = "snow/runners/Rio"
    results, failures = _split(
        batched,
        _family(),
        on_progress=steps.append,
        should_cancel=lambda name: name == gone and any(each.step == 5 for each in steps),
    )
    assert {name: failure.code for name, failure in failures.items()} == {gone: "cancelled"}
    assert set(results) == {r.request_id for r in _family()} - {gone}
    for name, result in results.items():
        np.testing.assert_array_equal(result.frames, expected[name].frames)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_branch_cancelled_with_its_children_leaves_its_sibling_and_its_parent(
    make_engine: Callable[..., Engine], batch_size: int
) -> None:
    engine = make_engine(batch_size=batch_size)
    expected = _render(engine, _family())
    steps: list[Progress] = []
    results, failures = _split(
        engine,
        _family(),
        on_progress=steps.append,
        should_cancel=lambda name: name.startswith("snow") and any(s.step == 3 for s in steps),
    )
    assert {failure.code for failure in failures.values()} == {"cancelled"}
    assert set(failures) == {"snow/runners/Paris", "snow/runners/Rio"}
    assert max(s.step for s in steps if s.request_id in failures) <= 3
    assert set(results) == set(expected) - set(failures)
    for name, result in results.items():
        # With fewer rows in a batch sums are taken in another order.
        assert _psnr(result.frames, expected[name].frames) > (60 if batch_size > 1 else 1000)


def test_a_tree_that_nobody_wants_any_more_stops_at_its_step(batched: Engine) -> None:
    steps: list[Progress] = []
    results, failures = _split(
        batched,
        _family(),
        on_progress=steps.append,
        should_cancel=lambda _: any(each.step == 3 for each in steps),
    )
    assert (results, len(failures)) == ({}, 4)
    assert max(each.step for each in steps) == 3


def test_a_sibling_whose_prompt_cannot_be_read_fails_alone(
    batched: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _render(batched, _family()[:1])
    runner = batched._runners["adloom-tiny"].model.runner
    encode = runner.encode

    def refuse(text: str) -> torch.Tensor:
        if text.endswith("a beach, for runners, Rio"):
            raise ZeroDivisionError(text)
        return encode(text)

    monkeypatch.setattr(runner, "encode", refuse)
    results, failures = _split(batched, _family())
    assert (len(results), list(failures)) == (3, ["a beach/runners/Rio"])
    assert failures["a beach/runners/Rio"].code == "render_error"


def test_a_shared_edge_that_fails_fails_those_that_stand_on_it(
    batched: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _render(batched, _family()[:1])
    runner = batched._runners["adloom-tiny"].model.runner
    encode = runner.encode

    def refuse(text: str) -> torch.Tensor:
        if text == "a red sneaker on snow, for runners":
            raise ZeroDivisionError(text)
        return encode(text)

    monkeypatch.setattr(runner, "encode", refuse)
    results, failures = _split(batched, _family())
    assert {name.split("/")[0] for name in results} == {"a beach"}
    assert {name.split("/")[0] for name in failures} == {"snow"}


def test_a_batch_beyond_the_memory_is_halved_and_stays_so(
    make_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def small_memory(pipeline: Any, **call: Any) -> Any:
        sizes.append(call["prompt_embeds"].shape[0])
        if sizes[-1] > 2:
            raise torch.OutOfMemoryError("too much")
        return run_segment(pipeline, **call)

    monkeypatch.setattr("engine.edge_runner.run_segment", small_memory)
    engine = make_engine(batch_size=4)
    results = _render(engine, _family(places=("Paris", "Rio", "Oslo")))
    assert len(results) == 6
    # Root, two backdrops, four of the six leaves in vain, then two at a time.
    assert sizes == [1, 2, 4, 2, 2, 2]


def test_shared_edges_beyond_the_memory_are_run_one_by_one(
    make_engine: Callable[..., Engine], one_by_one: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _render(one_by_one, _family())
    failed: list[int] = []

    def small_memory(pipeline: Any, **call: Any) -> Any:
        rows = call["prompt_embeds"].shape[0]
        if rows > 1:
            failed.append(call["stop"])
            raise torch.OutOfMemoryError("too much")
        return run_segment(pipeline, **call)

    monkeypatch.setattr("engine.edge_runner.run_segment", small_memory)
    results = _render(make_engine(batch_size=4), _family())
    # The two backdrops, which end at step 4; after that nothing is tried together any more.
    assert failed == [4]
    for name, result in results.items():
        np.testing.assert_array_equal(result.frames, expected[name].frames)


def test_memory_that_holds_not_even_one_row_is_said(
    batched: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("too much")

    monkeypatch.setattr("engine.edge_runner.run_segment", no_memory)
    results, failures = _split(batched, _family())
    assert not results
    assert {(each.code, each.is_retryable) for each in failures.values()} == {
        ("out_of_memory", True)
    }


def test_the_next_subtree_takes_shared_states_from_the_cache(
    make_engine: Callable[..., Engine], one_by_one: Engine
) -> None:
    engine = make_engine(batch_size=1, cache_bytes=1 << 20)
    _render(engine, _family(("snow",)))
    states = engine.cache.counters["states"]
    assert (states.hits, states.misses) == (0, 2)
    later = _render(engine, _family(("a beach",)))
    assert (states.hits, states.misses) == (1, 3)
    cold = _render(one_by_one, _family(("a beach",)))
    for name, result in later.items():
        np.testing.assert_array_equal(result.frames, cold[name].frames)
        assert result.forwards_computed == cold[name].forwards_computed - 2
        assert result.provenance["forwards"]["saved"]["state_cache"] == 4
        assert [edge["from_cache"] for edge in result.provenance["edges"]] == [True, False, False]


@pytest.mark.parametrize("change", [{"seed": 8}, {"negative_prompt": "blur"}], ids=str)
def test_states_of_another_family_are_not_taken(
    make_engine: Callable[..., Engine], change: dict[str, Any]
) -> None:
    engine = make_engine(batch_size=1, cache_bytes=1 << 20)
    _render(engine, _family())
    _render(engine, _family(**change))
    assert engine.cache.counters["states"].hits == 0


def test_prompts_are_encoded_once(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine(cache_bytes=1 << 20)
    _render(engine, _family())
    texts = engine.cache.counters["texts"]
    # Stem, two backdrops, four prompts, and the negative one, which three batches ask for.
    assert (texts.hits, texts.misses) == (2, 8)


def test_without_a_cache_the_frames_are_the_same(
    make_engine: Callable[..., Engine], one_by_one: Engine
) -> None:
    kept = _render(make_engine(batch_size=1, cache_bytes=1 << 20), _family())
    for name, result in _render(one_by_one, _family()).items():
        np.testing.assert_array_equal(result.frames, kept[name].frames)
    assert one_by_one.cache.size_bytes == 0


def test_twins_in_a_tree_are_rendered_once(one_by_one: Engine) -> None:
    requests = _family()
    twin = replace(requests[0], request_id="twin")
    results = _render(one_by_one, [*requests, twin])
    pair = [results[requests[0].request_id], results["twin"]]
    np.testing.assert_array_equal(pair[0].frames, pair[1].frames)
    assert sorted(result.forwards_computed for result in pair)[0] == 0
    assert _computed(results) == pytest.approx(_computed(_render(one_by_one, requests)))
    (copy,) = [result for result in pair if result.forwards_computed == 0]
    assert copy.provenance["forwards"]["saved"] == {"duplicate": FULL}


def test_sizes_are_rendered_as_families_of_their_own(batched: Engine) -> None:
    wide = _family(places=("Paris",))
    tall = [
        replace(
            request,
            request_id=f"tall {request.request_id}",
            settings=replace(request.settings, width=128, height=160),
        )
        for request in wide
    ]
    shapes = {name: r.frames.shape[1:3] for name, r in _render(batched, [*wide, *tall]).items()}
    assert set(shapes.values()) == {(128, 224), (160, 128)}
    assert all((shape == (160, 128)) == name.startswith("tall") for name, shape in shapes.items())


def test_each_stem_conditions_the_shared_steps_in_its_own_way(
    make_engine: Callable[..., Engine],
) -> None:
    frames = [
        _render(make_engine(stem_conditioning=stem), _family())["snow/runners/Rio"].frames
        for stem in StemConditioning
    ]
    assert not np.array_equal(frames[0], frames[1])
    assert not np.array_equal(frames[1], frames[2])


def test_held_guidance_computes_only_the_conditional_branch(
    make_engine: Callable[..., Engine], one_by_one: Engine
) -> None:
    policy = StepCachePolicy(hold_guidance_from=0.5)
    engine = make_engine(batch_size=1, step_cache=policy)
    (request,) = _family(("snow",), ("Rio",))
    (result,) = _render(engine, [forked(request)]).values()
    # Steps 4 to 6 take the guidance that step 3 computed.
    assert result.provenance["forwards"]["saved"] == {"guidance": 3}
    assert result.forwards_computed == FULL - 3
    assert result.provenance["rendered_as"] == "consistent"
    (plain,) = _render(one_by_one, [forked(request)]).values()
    assert 20 < _psnr(result.frames, plain.frames) < 100


@pytest.mark.parametrize(
    "policy",
    [
        StepCachePolicy(method=StepCacheMethod.FIRST_BLOCK, threshold=10.0),
        StepCachePolicy(method=StepCacheMethod.MAG, threshold=10.0, mag_ratios=(1.0,) * STEPS),
    ],
    ids=["first block", "mag"],
)
def test_a_step_cache_skips_forwards_and_leaves_the_model_as_it_was(
    make_engine: Callable[..., Engine], policy: StepCachePolicy
) -> None:
    engine = make_engine(batch_size=1, step_cache=policy)
    (request,) = _family(("snow",), ("Rio",))
    exact = replace(request, settings=replace(request.settings, profile=QualityProfile.EXACT))
    before = _render(engine, [exact])[exact.request_id]
    (result,) = _render(engine, [forked(request)]).values()
    saved = result.provenance["forwards"]["saved"]
    assert set(saved) == {"step_cache"}
    assert saved["step_cache"] + result.forwards_computed == FULL
    assert saved["step_cache"] >= 4
    # `exact` skips nothing, before or after.
    after = _render(engine, [exact])[exact.request_id]
    assert after.forwards_computed == before.forwards_computed == FULL
    np.testing.assert_array_equal(after.frames, before.frames)


def test_a_forward_that_somebody_replaced_before_stays_replaced(
    make_engine: Callable[..., Engine],
) -> None:
    one_by_one = make_engine(batch_size=1, step_cache=StepCachePolicy())
    request = forked(_family(("snow",), ("Rio",))[0])
    (expected,) = _render(one_by_one, [request]).values()
    transformer = one_by_one._runners["adloom-tiny"].model.runner._main.transformer
    forward, calls = transformer.forward, []

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs["hidden_states"].shape[0])
        return forward(*args, **kwargs)

    transformer.forward = counting
    try:
        (result,) = _render(one_by_one, [request]).values()
        assert transformer.forward is counting
    finally:
        del transformer.forward
    assert calls == [1] * FULL
    np.testing.assert_array_equal(result.frames, expected.frames)
