"""Rendering a family as a tree: what is shared, batched, kept and spared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import WanPipeline

from engine.engine import Engine
from engine.plan import plan
from engine.segments import run_segment
from engine.types import (
    Progress,
    QualityProfile,
    StemConditioning,
    StepCacheMethod,
    StepCachePolicy,
)
from tests.unit.engine.families import forked, variant
from tests.unit.engine.tree_tools import (
    FULL,
    STEPS,
    computed,
    num_states,
    psnr_of,
    render_all,
    tree_family,
)


def test_a_tree_equals_segments_run_by_hand_bit_for_bit(
    one_by_one: Engine, model_dir: Path
) -> None:
    results = render_all(one_by_one, tree_family())
    pipeline = WanPipeline.from_pretrained(model_dir / "tiny")
    pipeline.set_progress_bar_config(disable=True)
    settings = tree_family()[0].settings
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
            frames = one_by_one.models.get("adloom-tiny").model.runner.decode(
                leaf.latents, tree_family()[0]
            )
            np.testing.assert_array_equal(results[f"{backdrop}/runners/{place}"].frames, frames)


def test_batched_edges_equal_single_ones_up_to_rounding(
    one_by_one: Engine, batched: Engine
) -> None:
    single, together = render_all(one_by_one, tree_family()), render_all(batched, tree_family())
    for name, result in together.items():
        assert psnr_of(result.frames, single[name].frames) > 60
        assert [edge["batch"] for edge in result.provenance["edges"]] == [1, 2, 4]
        assert result.provenance["rendered_as"] == "faithful"


def test_branches_that_share_no_steps_start_from_the_same_noise(
    make_engine: Callable[..., Engine],
) -> None:
    requests = [forked(request) for request in tree_family()]
    alone, together = (
        render_all(make_engine(batch_size=size, step_cache=StepCachePolicy()), requests)
        for size in (1, 4)
    )
    for name, result in together.items():
        assert alone[name].provenance["rendered_as"] == "exact"
        assert result.provenance["edges"][0]["batch"] == 4
        assert psnr_of(result.frames, alone[name].frames) > 60


def test_exact_variants_are_never_batched_and_equal_a_render_alone(batched: Engine) -> None:
    requests = [
        variant(backdrop, steps=STEPS, profile=QualityProfile.EXACT)
        for backdrop in ("snow", "a beach")
    ]
    for name, result in render_all(batched, requests).items():
        (alone,) = [request for request in requests if request.request_id == name]
        np.testing.assert_array_equal(result.frames, render_all(batched, [alone])[name].frames)
        assert result.provenance["rendered_as"] == "exact"
        assert (result.forwards_computed, result.provenance["forwards"]["saved"]) == (FULL, {})


def test_what_a_tree_takes_is_what_was_planned(one_by_one: Engine) -> None:
    requests = tree_family()
    (group,) = plan(requests).groups
    results = render_all(one_by_one, requests)
    # A root of 2 steps, two branches of 2, four leaves of 2; two forwards each.
    assert computed(results) == pytest.approx(2 * (2 + 2 * 2 + 4 * 2))
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
    results = render_all(batched, tree_family())
    # One row instead of two where the backdrops fork, two instead of four where the places do.
    assert computed(results) == pytest.approx(2 * (2 + 2 * 2 + 4 * 2) - 1 - 2)
    for result in results.values():
        forwards = result.provenance["forwards"]
        assert forwards["saved"]["unconditional"] == pytest.approx(1 / 2 + 2 / 4)
        assert forwards["computed"] + sum(forwards["saved"].values()) == pytest.approx(FULL)


def test_one_subtree_is_finished_before_the_next_one_begins(one_by_one: Engine) -> None:
    steps: list[Progress] = []
    outcomes = one_by_one.generate(tree_family(), on_progress=steps.append)
    next(outcomes)
    begun = {each.request_id.split("/")[0] for each in steps if each.step > 2}
    assert len(begun) == 1
    assert max(each.step for each in steps if each.request_id.startswith("snow")) == 2


def test_states_are_held_only_as_long_as_their_children_wait(
    make_engine: Callable[..., Engine],
) -> None:
    engine, held = make_engine(batch_size=2), []
    requests = tree_family(backdrops=("snow", "a beach", "a roof", "a lake"))

    before = num_states()

    def count(progress: Progress) -> None:
        if progress.step == STEPS:
            held.append(num_states() - before)

    render_all(engine, requests, on_progress=count)
    # The root's state while two backdrops wait, two backdrops', and the stack of a batch of leaves.
    assert max(held) == 4
    assert num_states() == before


def test_each_request_hears_of_each_of_its_steps_once(batched: Engine) -> None:
    steps: list[Progress] = []
    render_all(batched, tree_family(), on_progress=steps.append)
    for request in tree_family():
        seen = [each.step for each in steps if each.request_id == request.request_id]
        assert seen == [1, 2, 3, 4, 5, 6]


def test_the_next_subtree_takes_shared_states_from_the_cache(
    make_engine: Callable[..., Engine], one_by_one: Engine
) -> None:
    engine = make_engine(batch_size=1, cache_bytes=1 << 20)
    render_all(engine, tree_family(("snow",)))
    states = engine.cache.counters["states"]
    assert (states.hits, states.misses) == (0, 2)
    later = render_all(engine, tree_family(("a beach",)))
    assert (states.hits, states.misses) == (1, 3)
    cold = render_all(one_by_one, tree_family(("a beach",)))
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
    render_all(engine, tree_family())
    render_all(engine, tree_family(**change))
    assert engine.cache.counters["states"].hits == 0


def test_prompts_are_encoded_once(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine(cache_bytes=1 << 20)
    render_all(engine, tree_family())
    texts = engine.cache.counters["texts"]
    # Stem, two backdrops, four prompts, and the negative one, which three batches ask for.
    assert (texts.hits, texts.misses) == (2, 8)


def test_without_a_cache_the_frames_are_the_same(
    make_engine: Callable[..., Engine], one_by_one: Engine
) -> None:
    kept = render_all(make_engine(batch_size=1, cache_bytes=1 << 20), tree_family())
    for name, result in render_all(one_by_one, tree_family()).items():
        np.testing.assert_array_equal(result.frames, kept[name].frames)
    assert one_by_one.cache.size_bytes == 0


def test_twins_in_a_tree_are_rendered_once(one_by_one: Engine) -> None:
    requests = tree_family()
    twin = replace(requests[0], request_id="twin")
    results = render_all(one_by_one, [*requests, twin])
    pair = [results[requests[0].request_id], results["twin"]]
    np.testing.assert_array_equal(pair[0].frames, pair[1].frames)
    assert sorted(result.forwards_computed for result in pair)[0] == 0
    assert computed(results) == pytest.approx(computed(render_all(one_by_one, requests)))
    (copy,) = [result for result in pair if result.forwards_computed == 0]
    assert copy.provenance["forwards"]["saved"] == {"duplicate": FULL}


def test_sizes_are_rendered_as_families_of_their_own(batched: Engine) -> None:
    wide = tree_family(places=("Paris",))
    tall = [
        replace(
            request,
            request_id=f"tall {request.request_id}",
            settings=replace(request.settings, width=128, height=160),
        )
        for request in wide
    ]
    shapes = {name: r.frames.shape[1:3] for name, r in render_all(batched, [*wide, *tall]).items()}
    assert set(shapes.values()) == {(128, 224), (160, 128)}
    assert all((shape == (160, 128)) == name.startswith("tall") for name, shape in shapes.items())


def test_each_stem_conditions_the_shared_steps_in_its_own_way(
    make_engine: Callable[..., Engine],
) -> None:
    frames = [
        render_all(make_engine(stem_conditioning=stem), tree_family())["snow/runners/Rio"].frames
        for stem in StemConditioning
    ]
    assert not np.array_equal(frames[0], frames[1])
    assert not np.array_equal(frames[1], frames[2])


def test_held_guidance_computes_only_the_conditional_branch(
    make_engine: Callable[..., Engine], one_by_one: Engine
) -> None:
    policy = StepCachePolicy(hold_guidance_from=0.5)
    engine = make_engine(batch_size=1, step_cache=policy)
    (request,) = tree_family(("snow",), ("Rio",))
    (result,) = render_all(engine, [forked(request)]).values()
    # Steps 4 to 6 take the guidance that step 3 computed.
    assert result.provenance["forwards"]["saved"] == {"guidance": 3}
    assert result.forwards_computed == FULL - 3
    assert result.provenance["rendered_as"] == "faithful"
    (plain,) = render_all(one_by_one, [forked(request)]).values()
    assert 20 < psnr_of(result.frames, plain.frames) < 100


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
    (request,) = tree_family(("snow",), ("Rio",))
    exact = replace(request, settings=replace(request.settings, profile=QualityProfile.EXACT))
    before = render_all(engine, [exact])[exact.request_id]
    (result,) = render_all(engine, [forked(request)]).values()
    saved = result.provenance["forwards"]["saved"]
    assert set(saved) == {"step_cache"}
    assert saved["step_cache"] + result.forwards_computed == FULL
    assert saved["step_cache"] >= 4
    # `exact` skips nothing, before or after.
    after = render_all(engine, [exact])[exact.request_id]
    assert after.forwards_computed == before.forwards_computed == FULL
    np.testing.assert_array_equal(after.frames, before.frames)


def test_a_forward_that_somebody_replaced_before_stays_replaced(
    make_engine: Callable[..., Engine],
) -> None:
    one_by_one = make_engine(batch_size=1, step_cache=StepCachePolicy())
    request = forked(tree_family(("snow",), ("Rio",))[0])
    (expected,) = render_all(one_by_one, [request]).values()
    transformer = one_by_one.models.get("adloom-tiny").model.runner._main.transformer
    forward, calls = transformer.forward, []

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs["hidden_states"].shape[0])
        return forward(*args, **kwargs)

    transformer.forward = counting
    try:
        (result,) = render_all(one_by_one, [request]).values()
        assert transformer.forward is counting
    finally:
        del transformer.forward
    assert calls == [1] * FULL
    np.testing.assert_array_equal(result.frames, expected.frames)
