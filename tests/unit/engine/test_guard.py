"""The guard: what it delivers, what it does where a promise is broken, and what that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.comparing import exactly, unshared
from engine.config import EngineConfig
from engine.distances import psnr_db
from engine.engine import Engine
from engine.guarded import guard_checks, screen_checks
from engine.leaves import Leaf
from engine.plan import calibrate, plan
from engine.profiles import Distance, Promise
from engine.registry import weights_fingerprint
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Progress,
    QualityProfile,
    StageSeconds,
    StepCacheMethod,
    StepCachePolicy,
)
from engine.units import clip_units, forward_units
from tests.unit.engine.families import forked, variant

STEPS = 6
Outcomes = dict[str, GenerationResult]


@pytest.fixture(scope="module")
def make_engine(model_dir: Path) -> Callable[..., Engine]:
    def make(**changes: Any) -> Engine:
        known: dict[str, Any] = {
            "model_dir": model_dir,
            "device": "cpu",
            "cache_bytes": 0,
            "step_cache": StepCachePolicy(),  # nothing but the tree is approximate here
        }
        return Engine(EngineConfig(**(known | changes)))

    return make


@pytest.fixture
def promise(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Random weights keep no promise; these tests say what is promised."""

    def set_promise(**bounds: float) -> None:
        promises = dict.fromkeys(QualityProfile, Promise(**bounds))
        monkeypatch.setattr("engine.guard.PROMISES", promises)

    return set_promise


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


def _render(engine: Engine, requests: Iterable[GenerationRequest], **callbacks: Any) -> Outcomes:
    outcomes = list(engine.generate(requests, **callbacks))
    assert all(isinstance(outcome, GenerationResult) for outcome in outcomes), outcomes
    return {o.request_id: o for o in outcomes if isinstance(o, GenerationResult)}


def _sampled(requests: Sequence[GenerationRequest]) -> tuple[str, ...]:
    (check,) = guard_checks(requests, is_calibrated=False)
    return check.request_ids


def _guards(results: Outcomes) -> dict[str, dict[str, Any]]:
    return {name: result.provenance["guard"] for name, result in results.items()}


def _decisions(results: Outcomes) -> Counter[str]:
    return Counter(guard["decision"] for guard in _guards(results).values())


def _exact_frames(engine: Engine, requests: Iterable[GenerationRequest]) -> dict[str, Any]:
    exact = _render(engine, [exactly(request) for request in requests])
    return {name: result.frames for name, result in exact.items()}


def test_sampled_variants_deliver_their_exact_renders_and_the_others_the_trees(
    make_engine: Callable[..., Engine], promise: Callable[..., None]
) -> None:
    promise(max_drift=1e9)
    engine, requests = make_engine(), _family()
    results, sampled = _render(engine, requests), _sampled(requests)
    exact = _exact_frames(engine, requests)
    unguarded = _render(make_engine(guard_every=0), requests)
    for name, result in results.items():
        guard = result.provenance["guard"]
        assert (guard.get("reference") == "exact", guard["decision"]) == (name in sampled, "kept")
        expected = exact[name] if name in sampled else unguarded[name].frames
        np.testing.assert_array_equal(result.frames, expected)
        assert result.provenance["profile"] == "consistent"
        assert result.provenance["rendered_as"] == ("exact" if name in sampled else "consistent")
    one, other = (results[name].provenance["guard"] for name in sampled)
    assert one["projection"] == other["projection"] is not None
    assert {type(one[name]) for name in ("drift", "psnr", "ssim")} == {float}


def test_the_guards_work_is_what_was_planned_and_told_apart(
    make_engine: Callable[..., Engine], promise: Callable[..., None]
) -> None:
    promise(max_drift=1e9)
    requests = _family()
    results = _render(make_engine(batch_size=1, step_cache=None), requests)
    (group,) = plan(requests).groups
    for member in group.members:
        result = results[member.request_id]
        assert result.guard_units == pytest.approx(member.guard_units)
        assert result.work_units == pytest.approx(member.shared_units + member.guard_units)
    # A control and a variant exactly; a control, a backdrop and a place in their own ways.
    settings = requests[0].settings
    own_way = clip_units(settings) - 2 * 2 * forward_units(settings)  # two of six steps skipped
    assert sum(r.guard_units for r in results.values()) == pytest.approx(
        2 * clip_units(settings) + 3 * own_way
    )


def test_a_broken_promise_narrows_the_group_until_it_is_kept(
    make_engine: Callable[..., Engine], promise: Callable[..., None]
) -> None:
    promise(min_psnr_db=1e9)  # only what shares nothing keeps it
    engine, requests = make_engine(batch_size=1), _family()
    results, sampled = _render(engine, requests), _sampled(requests)
    exact = _exact_frames(engine, requests)
    for name, result in results.items():
        np.testing.assert_array_equal(result.frames, exact[name])
        assert result.provenance["rendered_as"] == "exact"
    assert _decisions(results)["kept"] == 0
    guards = _guards(results)
    assert {n for n, guard in guards.items() if guard.get("reference") == "exact"} == set(sampled)
    assert all(set(g["latest_forks"].values()) == {0} for g in _guards(results).values())
    # What was given up is the guard's work as well.
    spent = sum(result.guard_units for result in results.values())
    assert spent > 2 * clip_units(requests[0].settings)


def test_nothing_of_a_group_is_handed_out_before_its_check(
    make_engine: Callable[..., Engine], promise: Callable[..., None]
) -> None:
    promise(min_psnr_db=1e9)
    requests = _family(backdrops=("snow", "a beach", "a roof", "a lake"))
    # What is checked comes first, and the others wait for what it shows.
    checks = (*guard_checks(requests, is_calibrated=False), *screen_checks(requests))
    checked = {name for check in checks for name in check.request_ids}
    decisions = _decisions(_render(make_engine(batch_size=1), requests))
    assert decisions["kept"] == 0
    assert len(checked) <= decisions["re-rendered"] < len(requests)


def test_a_step_cache_is_dropped_where_it_breaks_the_promise(
    make_engine: Callable[..., Engine], promise: Callable[..., None]
) -> None:
    promise(min_psnr_db=60.0)
    policy = StepCachePolicy(method=StepCacheMethod.FIRST_BLOCK, threshold=10.0)
    engine = make_engine(batch_size=1, step_cache=policy)
    requests = [forked(request) for request in _family()]
    results = _render(engine, requests)
    assert _decisions(results)["kept"] == 0
    for result in results.values():
        assert "step_cache" not in result.provenance["forwards"]["saved"]


def test_a_later_group_of_the_family_begins_narrowed(
    make_engine: Callable[..., Engine], promise: Callable[..., None]
) -> None:
    promise(min_psnr_db=1e9)
    engine = make_engine()
    _render(engine, _family())
    later = _render(engine, _family(("a roof", "a lake")))
    assert _decisions(later) == {"narrowed": 4}
    assert sum(result.guard_units for result in later.values()) == 0
    # Another family has its own check.
    assert _decisions(_render(engine, [replace(r, seed=8) for r in _family()]))["re-rendered"] >= 2


def test_a_cancelled_sample_is_replaced_by_another(
    make_engine: Callable[..., Engine], promise: Callable[..., None]
) -> None:
    promise(max_drift=1e9)
    requests = _family(backdrops=("snow", "a beach", "a roof"))
    gone = _sampled(requests)[0]
    steps: list[Progress] = []
    outcomes = list(
        make_engine(batch_size=2).generate(
            requests,
            on_progress=steps.append,
            # Its own render is done; it is cancelled within the exact one.
            should_cancel=lambda name: name == gone and len(outcomes_of(steps, gone)) == STEPS,
        )
    )
    (failure,) = [o for o in outcomes if isinstance(o, GenerationFailure)]
    assert (failure.request_id, failure.code) == (gone, "cancelled")
    results = {o.request_id: o for o in outcomes if isinstance(o, GenerationResult)}
    assert len(results) == 5
    sampled = {name for name, guard in _guards(results).items() if guard["sampled"]}
    left = [request for request in requests if request.request_id != gone]
    assert sampled >= set(_sampled(left))


def outcomes_of(steps: Iterable[Progress], name: str) -> list[Progress]:
    return [each for each in steps if each.request_id == name]


def test_each_step_is_heard_of_once_however_often_it_is_rendered(
    make_engine: Callable[..., Engine], promise: Callable[..., None]
) -> None:
    promise(min_psnr_db=1e9)
    steps: list[Progress] = []
    requests = _family()
    _render(make_engine(), requests, on_progress=steps.append)
    for request in requests:
        seen = [each.step for each in outcomes_of(steps, request.request_id)]
        assert seen == list(range(1, STEPS + 1))


def test_twins_of_a_sampled_variant_get_its_exact_frames_too(
    make_engine: Callable[..., Engine], promise: Callable[..., None]
) -> None:
    promise(max_drift=1e9)
    requests = _family()
    name = _sampled(requests)[0]
    (original,) = [request for request in requests if request.request_id == name]
    results = _render(make_engine(), [*requests, replace(original, request_id="twin")])
    np.testing.assert_array_equal(results["twin"].frames, results[name].frames)
    units = sorted((results["twin"].guard_units, results[name].guard_units))
    assert units[0] == 0
    assert units[1] >= clip_units(original.settings)


def test_exact_and_lonely_renders_have_no_guard(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine()
    for requests in (_family(profile=QualityProfile.EXACT), [forked(_family()[0])]):
        for result in _render(engine, requests).values():
            assert "guard" not in result.provenance
            assert result.guard_units == 0


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Screened variants that hold one of these words fail beside controls that do not.

    What is returned fills with the screened prompts.
    """

    def set_broken(*words: str) -> list[str]:
        compared: list[str] = []

        def compare(pairs: Sequence[tuple[Leaf, Leaf]]) -> list[Distance]:
            prompts = [leaf.requests[0].prompt for leaf, _ in pairs]
            is_screening = pairs[0][1].requests[0].settings.profile is not QualityProfile.EXACT
            compared.extend(prompts[:1] if is_screening else [])
            fails = is_screening and any(
                word in prompts[0] and word not in prompts[1] for word in words
            )
            return [Distance(psnr_db=40, ssim=1, projection=0 if fails else 1, drift=1)] * 2

        monkeypatch.setattr("engine.guard.compare", compare)
        return compared

    return set_broken


def test_a_single_failure_has_its_siblings_screened_and_is_replaced(
    make_engine: Callable[..., Engine], broken: Callable[..., list[str]]
) -> None:
    requests = _family(("snow", "a beach", "a roof"), ("Paris", "Rio", "Oslo"))
    failing = next(
        check.request_id for check in screen_checks(requests) if "backdrop" in check.parameters
    )
    backdrop, _, place = failing.split("/")
    compared = broken(f"{backdrop}, for runners, {place}")
    engine = make_engine(batch_size=1)
    results = _render(engine, requests)
    alike = {r.prompt for r in requests if r.slot_values()["backdrop"] == backdrop}
    assert alike <= set(compared)
    own = _render(make_engine(guard_every=0, batch_size=1), [unshared(r) for r in requests])
    exact = _sampled(requests)
    for name, guard in _guards(results).items():
        is_replaced = name == failing
        assert guard["decision"] == ("replaced" if is_replaced else "kept")
        if is_replaced and name not in exact:
            assert guard["reference"] == "unshared"
            np.testing.assert_array_equal(results[name].frames, own[name].frames)


def test_a_value_that_fails_twice_narrows_its_parameter_for_the_family(
    make_engine: Callable[..., Engine], broken: Callable[..., list[str]]
) -> None:
    requests = _family(("snow", "a beach", "a roof"), ("Paris", "Rio", "Oslo"))
    broken("on a beach", "on snow", "on a roof")
    engine = make_engine()
    results = _render(engine, requests)
    for guard in _guards(results).values():
        assert guard["decision"] in ("re-rendered", "narrowed")
        # The places kept theirs.
        assert guard["latest_forks"] == {"backdrop": 0, "audience": 0, "place": 4}
    later = _render(engine, _family(("a lake", "a street")))
    assert _decisions(later) == {"narrowed": 4}
    assert all(len(result.provenance["edges"]) <= 2 for result in later.values())


def test_values_that_were_seen_are_not_screened_again(
    make_engine: Callable[..., Engine], broken: Callable[..., list[str]], model_dir: Path
) -> None:
    compared = broken()
    engine = make_engine(guard_every=1_000_000_000)
    first = _render(engine, _family(("snow", "a beach")))
    num_screened = len(compared)
    assert num_screened == 2
    assert sum(result.guard_units for result in first.values()) > 0
    _render(engine, [replace(r, request_id=f"{r.request_id}/2") for r in _family()])
    assert len(compared) == num_screened


@pytest.mark.parametrize("profile", ["consistent", "faithful"])
def test_an_absurd_fork_of_a_calibration_is_caught_and_rendered_again(profile: str) -> None:
    """A calibrated family of a few variants has no exact check, so its screening must see it."""
    requests = [
        variant(backdrop, "runners", "paris", steps=8, profile=QualityProfile(profile))
        for backdrop in ("a beach", "mountains", "snow")
    ]
    measured = calibrate(
        requests[0].settings,
        [StageSeconds(denoise=1.0)],
        weights_fingerprint=weights_fingerprint("adloom-tiny"),
        device_kind="cpu",
        solver="Euler",
    )
    absurd = replace(measured, fork_steps={"backdrop": 7})
    engine = Engine(EngineConfig(device="cpu"), calibration=absurd)
    results = _render(engine, requests)
    unguarded = _render(
        Engine(EngineConfig(device="cpu", guard_every=0), calibration=absurd), requests
    )
    exact = _exact_frames(engine, requests)
    for name, result in results.items():
        guard = result.provenance["guard"]
        assert guard["decision"] in ("re-rendered", "narrowed", "replaced")
        assert guard.get("reference", "unshared") == "unshared"
        assert psnr_db(result.frames, exact[name]) > psnr_db(unguarded[name].frames, exact[name])


@pytest.mark.parametrize("profile", ["consistent", "faithful"])
def test_the_built_in_model_is_not_delivered_with_an_absurd_fork(profile: str) -> None:
    """The promises as they stand, on trained weights; a loose bound lets the control through."""
    engine = Engine(EngineConfig(device="cpu"))
    requests = [
        forked(
            variant(backdrop, "runners", "paris", steps=8, profile=QualityProfile(profile)),
            backdrop=7,
        )
        for backdrop in ("a beach", "mountains")
    ]
    results = _render(engine, requests)
    exact = _exact_frames(engine, requests)
    assert _decisions(results)["kept"] == 0
    for name, result in results.items():
        guard = result.provenance["guard"]
        assert guard["latest_forks"]["backdrop"] < 7
        if guard["sampled"]:
            np.testing.assert_array_equal(result.frames, exact[name])
