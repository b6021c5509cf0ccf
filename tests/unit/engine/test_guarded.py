"""Which variants the guard renders exactly, and what the plan asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from engine.guarded import (
    SCREEN_EVERY,
    GuardCheck,
    control_of,
    guard_checks,
    guarded_ids,
    screen_checks,
    sibling_checks,
    values_of,
)
from engine.plan import plan
from engine.terms import known_terms
from engine.types import GenerationRequest, QualityProfile
from engine.units import clip_units, decode_units, forward_units
from tests.unit.engine.families import forked, variant


def _family(count: int = 6, *, fork: int = 2, **changes: object) -> list[GenerationRequest]:
    places = ("Paris", "Rio")
    return [
        forked(variant(f"backdrop {i}", place=place, **changes), backdrop=fork, place=fork)
        for i, place in product(range(count // 2), places)
    ]


def _differing(requests: Sequence[GenerationRequest], left: str, right: str) -> set[str]:
    values = {request.request_id: request.slot_values() for request in requests}
    return {name for name, value in values[left].items() if values[right][name] != value}


def test_an_uncalibrated_group_has_a_variant_and_a_control_checked() -> None:
    requests = _family()
    (check,) = guard_checks(requests, is_calibrated=False)
    assert check.control_id is not None
    differing = _differing(requests, check.request_id, check.control_id)
    assert set(check.parameters) == differing
    assert check.control_id == control_of(requests).request_id
    assert guarded_ids(requests, is_calibrated=False) == check.request_ids
    assert guarded_ids(requests, is_calibrated=True) == ()


def test_one_in_fifty_is_rendered_exactly() -> None:
    requests = _family(4000, profile=QualityProfile.FAITHFUL)
    guarded = guarded_ids(requests, is_calibrated=True)
    assert 4000 / 50 * 0.7 < len(guarded) < 4000 / 50 * 1.3
    assert len(guarded_ids(requests, is_calibrated=True, every=10)) > 3 * len(guarded)
    assert guarded_ids(requests, is_calibrated=False, every=0) == ()
    # A control counts as well, and several variants may have the same one.
    requests = _family(4000)
    assert 20 <= len(guard_checks(requests, is_calibrated=True)) <= 60
    assert len(guarded_ids(requests, is_calibrated=True)) <= 4000 / 50


def test_all_checks_of_a_group_compare_with_the_control_that_its_variants_follow() -> None:
    requests = _family(2000)
    control = control_of(requests).request_id
    checks = guard_checks(requests, is_calibrated=True)
    assert {check.control_id for check in checks} == {control}
    assert control not in {check.request_id for check in checks}
    assert {check.parameters for check in checks} == {("backdrop",), ("backdrop", "place")}


def test_a_promise_of_closeness_needs_no_control() -> None:
    requests = _family(profile=QualityProfile.FAITHFUL)
    (check,) = guard_checks(requests, is_calibrated=False)
    assert (check.control_id, check.parameters) == (None, ("backdrop", "place"))


def test_prompts_and_seeds_decide_and_not_ids_or_order() -> None:
    requests = _family()
    prompts = {request.request_id: request.prompt for request in requests}
    jobs = [replace(request, request_id=f"job {i}") for i, request in enumerate(requests)]
    prompts |= {request.request_id: request.prompt for request in jobs}
    chosen = [
        prompts[guard_checks(group, is_calibrated=False)[0].request_id]
        for group in (requests, jobs, jobs[::-1])
    ]
    assert len(set(chosen)) == 1
    by_seed = {
        guard_checks([replace(request, seed=seed) for request in requests], is_calibrated=False)[
            0
        ].request_id
        for seed in range(8)
    }
    assert len(by_seed) > 1


@pytest.mark.parametrize(
    "requests",
    [
        _family(profile=QualityProfile.EXACT),
        _family(fork=0),
        _family()[:1],
        [_family()[0], replace(_family()[0], request_id="twin")],
    ],
    ids=["exact", "nothing shared", "alone", "twins"],
)
def test_what_is_exact_or_alone_is_not_guarded(requests: list[GenerationRequest]) -> None:
    assert guarded_ids(requests, is_calibrated=False) == ()


def test_skipped_steps_are_guarded_where_nothing_is_shared() -> None:
    assert guarded_ids(_family(fork=0), is_calibrated=False, skips_steps=True)


def test_the_guards_work_has_its_own_price() -> None:
    requests = _family()
    planned = plan(requests)
    guarded = set(guarded_ids(requests, is_calibrated=False))
    screened = {name for check in screen_checks(requests) for name in check.request_ids}
    assert (len(guarded), len(screened)) == (2, 3)
    # Of ten steps extrapolation computes the first two, then every third and the last.
    settings = requests[0].settings
    clip, own_way = clip_units(settings), 10 * forward_units(settings) + decode_units(settings)
    prices = {m.request_id: m.guard_units for group in planned.groups for m in group.members}
    assert prices == {
        r.request_id: clip * (r.request_id in guarded) + own_way * (r.request_id in screened)
        for r in requests
    }
    # It is no part of what the tree takes.
    trusted = plan(
        requests, terms_of=lambda settings: replace(known_terms(settings), is_calibrated=True)
    )
    assert trusted.guard_units == pytest.approx(3 * own_way)
    assert trusted.shared_units == planned.shared_units
    # What one group has shown is not looked at in the next ones.
    groups = plan(_family(12), max_group=6, varying=("backdrop",)).groups
    (first, second) = (
        sum(0 < m.guard_units < clip or m.guard_units > clip for m in group.members)
        for group in groups
    )
    assert (first, second) == (3, 0)


def _screened(requests: Sequence[GenerationRequest], **seen: str) -> list[GuardCheck]:
    return [*screen_checks(requests, seen=set(seen.items()))]


def test_each_parameter_that_shares_steps_is_screened_once_the_latest_fork_first() -> None:
    requests = [
        forked(variant(f"backdrop {i}", audience, place), backdrop=5, place=2)
        for i, audience, place in product(range(3), ("runners", "gamers"), ("Paris", "Rio"))
    ]
    checks = _screened(requests)
    assert [check.parameters for check in checks] == [("backdrop",), ("place",)]
    assert not any(check.is_exact for check in checks)
    # One control for all of them, so each further parameter takes one more render.
    assert len({check.control_id for check in checks}) == 1
    assert _screened([forked(request) for request in requests]) == []
    assert _screened(requests[:1]) == []
    assert screen_checks(requests, every=0) == ()


def test_a_promise_of_closeness_is_screened_without_a_control() -> None:
    checks = _screened(_family(profile=QualityProfile.FAITHFUL))
    assert [check.control_id for check in checks] == [None, None]


def test_values_that_no_check_has_seen_are_screened_within_a_budget() -> None:
    requests = _family(4 * SCREEN_EVERY)
    seen = set(values_of(screen_checks(requests), requests))
    assert {name for name, _ in seen} == {"backdrop", "place"}
    again = screen_checks(requests, seen=seen)
    assert len(again) == 4
    fresh = {value for name, value in values_of(again, requests)} - {value for _, value in seen}
    assert len(fresh) == 4
    everything = {(s.name, s.value) for request in requests for s in request.slots}
    assert screen_checks(requests, seen=everything) == ()


def test_siblings_of_a_failure_have_its_value_or_shared_its_edge() -> None:
    requests = [
        forked(variant(f"backdrop {i}", audience, place), backdrop=2)
        for i, audience, place in product(range(4), ("runners", "gamers"), ("Paris", "Rio"))
    ]
    (check,) = screen_checks(requests)
    assert check.control_id is not None
    siblings = sibling_checks(check, requests)
    values = {name: r.slot_values()["backdrop"] for r in requests for name in [r.request_id]}
    asked, known = values[check.request_id], values[check.control_id]
    found = [values[each.request_id] for each in siblings]
    assert found[:3] == [asked] * 3
    assert sorted(found[3:]) == sorted({*values.values()} - {asked, known})
    for each in siblings:
        assert each.control_id == check.control_id
        assert "backdrop" in each.parameters
        assert not each.is_exact
