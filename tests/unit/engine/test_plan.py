"""Grouping, order and price of requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import InvalidRequest
from engine.plan import affinity_key, calibrate, estimate_seconds, plan, stem
from engine.registry import default_settings
from engine.types import GenerationRequest, GenerationTask, PromptSlot, StageSeconds
from engine.units import clip_units

MakeRequest = Callable[..., GenerationRequest]


def _slot(prompt: str, name: str, value: str) -> PromptSlot:
    start = prompt.index(value)
    return PromptSlot(name=name, kind="text", value=value, span=(start, start + len(value)))


@pytest.fixture
def make_variant(make_request: MakeRequest) -> MakeRequest:
    """Requests of one template with two parameters."""

    def make(place: str, backdrop: str, **changes: Any) -> GenerationRequest:
        prompt = f"a sneaker in {place} before {backdrop}"
        slots = (_slot(prompt, "backdrop", backdrop), _slot(prompt, "place", place))
        return make_request(prompt, slots=slots, **changes)

    return make


def test_siblings_share_their_stem_and_their_key(make_variant: MakeRequest) -> None:
    first, second = make_variant("Paris", "snow"), make_variant("Rio", "a beach")
    assert stem(first) == "a sneaker in {place} before {backdrop}"
    assert affinity_key(first) == affinity_key(second)


def test_plain_text_cannot_imitate_a_slot(make_request: MakeRequest) -> None:
    prompt = "a red shoe"
    with_slot = make_request(prompt, slots=(_slot(prompt, "colour", "red"),))
    assert affinity_key(with_slot) != affinity_key(make_request("a {colour} shoe"))


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 8},
        {"negative_prompt": "blur"},
        {"references": (Path("a.png"),)},
        {"task": GenerationTask.I2V},
        {"width": 128, "height": 224},
        {"num_frames": 9},
        {"num_inference_steps": 3},
        {"guidance_scale": 3.0},
        {"profile": "draft"},
        {"model_id": "wan2.2-ti2v-5b"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_prevents_sharing_splits_the_key(
    make_variant: MakeRequest, changes: dict[str, Any]
) -> None:
    control = make_variant("Paris", "snow")
    assert affinity_key(make_variant("Paris", "snow", **changes)) != affinity_key(control)


def test_the_rate_of_frames_does_not_prevent_sharing(make_variant: MakeRequest) -> None:
    slow, fast = make_variant("Paris", "snow", fps=8), make_variant("Paris", "snow", fps=24)
    assert affinity_key(slow) == affinity_key(fast)


def test_families_are_cut_into_groups_that_a_worker_claims_whole(make_variant: MakeRequest) -> None:
    requests = [make_variant(f"city {i}", "snow") for i in range(10)]
    requests += [make_variant("Paris", "snow", seed=1)]
    result = plan(requests, max_group=4)
    assert [len(group.members) for group in result.groups] == [4, 4, 2, 1]
    planned = [member.request_id for group in result.groups for member in group.members]
    assert planned == [request.request_id for request in requests]
    assert [m.plan_order for m in result.groups[1].members] == [0, 1, 2, 3]
    assert len({group.group_key for group in result.groups}) == 4
    assert len({group.affinity_key for group in result.groups}) == 2


def test_the_same_requests_give_the_same_plan(make_variant: MakeRequest) -> None:
    requests = [make_variant(f"city {i % 3}", "snow") for i in range(7)]
    assert plan(requests) == plan(list(requests))


def test_what_is_left_of_a_group_gets_a_new_key(make_variant: MakeRequest) -> None:
    requests = [make_variant(f"city {i}", "snow") for i in range(3)]
    whole, rest = plan(requests), plan(requests[1:])
    assert whole.groups[0].affinity_key == rest.groups[0].affinity_key
    assert whole.groups[0].group_key != rest.groups[0].group_key


def test_equal_pixels_stand_together_and_are_paid_once(make_variant: MakeRequest) -> None:
    requests = [make_variant("Paris", "snow"), make_variant("Rio", "snow")]
    requests += [make_variant("Paris", "snow")]
    result = plan(requests)
    members = result.groups[0].members
    assert [member.request_id for member in members] == ["r0", "r2", "r1"]
    one = clip_units(requests[0].settings)
    assert [member.shared_units for member in members] == [one, 0.0, one]
    assert result.full_units == pytest.approx(3 * one)
    assert result.shared_units == pytest.approx(2 * one)


def test_a_twin_in_another_group_is_paid_again(make_variant: MakeRequest) -> None:
    requests = [make_variant("Paris", "snow") for _ in range(3)]
    result = plan(requests, max_group=2)
    assert result.shared_units == pytest.approx(2 * clip_units(requests[0].settings))


def test_one_more_value_costs_a_whole_clip_where_nothing_is_shared(
    make_variant: MakeRequest,
) -> None:
    result = plan([make_variant("Paris", "snow")])
    assert dict(result.unit_price_by_parameter) == {"backdrop": 1.0, "place": 1.0}


def test_no_requests_make_an_empty_plan() -> None:
    result = plan([])
    assert (result.groups, result.full_units, result.shared_units) == ((), 0, 0)


def test_groups_hold_at_least_one() -> None:
    with pytest.raises(InvalidRequest, match="max_group"):
        plan([], max_group=0)


def test_units_count_forwards_and_decode() -> None:
    settings = default_settings("adloom-tiny")
    units = clip_units(settings)
    unguided = clip_units(replace(settings, guidance_scale=1.0))
    # A forward at the default size is one unit, so 30 unconditional forwards are 30 units.
    assert units - unguided == pytest.approx(30)
    more_steps = clip_units(replace(settings, num_inference_steps=31))
    assert more_steps - units == pytest.approx(2)
    assert clip_units(replace(settings, num_frames=5)) < units / 2


def test_seconds_follow_from_measured_renders() -> None:
    settings = default_settings("adloom-tiny")
    times = [
        StageSeconds(text=5.0, denoise=9.0, decode=5.0),  # the first render warms up
        StageSeconds(text=0.1, denoise=3.0, decode=0.4),
        StageSeconds(text=0.1, denoise=3.0, decode=0.4),
    ]
    calibration = calibrate(
        settings, times, weights_fingerprint="f", device_kind="cpu", solver="Euler"
    )
    assert calibration.step_seconds == pytest.approx(0.1)
    assert calibration.clip_seconds == pytest.approx(3.5)
    units = clip_units(settings)
    assert estimate_seconds(24 * units, calibration=calibration) == pytest.approx(24 * 3.5)


def test_a_calibration_needs_a_render() -> None:
    with pytest.raises(InvalidRequest, match="at least one render"):
        calibrate(
            default_settings("adloom-tiny"),
            [],
            weights_fingerprint="f",
            device_kind="cpu",
            solver="Euler",
        )


def test_ten_thousand_requests_are_planned_in_one_go(make_variant: MakeRequest) -> None:
    requests = [make_variant(f"city {i}", f"backdrop {i % 7}") for i in range(10_000)]
    result = plan(requests)
    assert sum(len(group.members) for group in result.groups) == 10_000
