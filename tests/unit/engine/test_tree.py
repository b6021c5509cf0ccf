"""Where variants fork, which edges they share, and what each of them pays."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import InvalidRequest
from engine.forks import default_fork_steps, settle_forks, with_fork_steps
from engine.plan import Calibration, Plan, plan
from engine.registry import validate_request
from engine.stems import Stems, conditioning_texts, without_words
from engine.tree import DenoisingTree, Edge, build_tree
from engine.types import GenerationRequest, QualityProfile, StemConditioning
from engine.units import clip_units, decode_units, forward_units
from tests.unit.engine.families import STEPS, forked, variant

FORKS = {"backdrop": 2, "audience": 3, "geography": 6}


def _settled(requests: list[GenerationRequest], **forks: int) -> list[GenerationRequest]:
    return settle_forks(requests, fork_steps=FORKS | forks)


def _shape(tree: DenoisingTree) -> list[tuple[int, int, tuple[str, ...], int]]:
    """Start, stop, names that are fixed, number of members."""
    return [
        (edge.start, edge.stop, tuple(name for name, _ in edge.fixed), len(edge.members))
        for edge in tree.edges
    ]


def _campaign() -> list[GenerationRequest]:
    return [
        variant(backdrop, place=place)
        for backdrop, place in product(("snow", "a beach"), ("Paris", "Rio", "Oslo"))
    ]


def test_parameters_fork_in_the_order_of_their_steps() -> None:
    tree = build_tree(_settled(_campaign()))
    whole = ("audience", "backdrop", "place")
    branch = [(2, 6, ("audience", "backdrop"), 3), *[(6, STEPS, whole, 1)] * 3]
    # The audience is the same everywhere, so it is never left out.
    assert _shape(tree) == [(0, 2, ("audience",), 6), *branch, *branch]
    assert [edge.parent for edge in tree.edges] == [None, 0, 1, 1, 1, 0, 5, 5, 5]
    assert [edge.num_leaves for edge in tree.edges] == [6, 3, 1, 1, 1, 3, 1, 1, 1]


def test_a_node_with_one_child_is_merged_with_it() -> None:
    rows = [variant("snow", place="Paris"), variant("a beach", place="Rio")]
    tree = build_tree(_settled(rows))
    whole = ("audience", "backdrop", "place")
    assert _shape(tree) == [(0, 2, ("audience",), 2), (2, STEPS, whole, 1), (2, STEPS, whole, 1)]


def test_a_request_alone_is_its_own_render() -> None:
    (edge,) = build_tree(_settled([variant("snow")])).edges
    assert (edge.start, edge.stop, len(edge.fixed)) == (0, STEPS, 3)


def test_parameters_that_vary_elsewhere_are_left_out_of_the_stem() -> None:
    chunk = [variant("snow", place=place) for place in ("Paris", "Rio")]
    settled = settle_forks(chunk, fork_steps=FORKS, varying={"backdrop", "place"})
    assert _shape(build_tree(settled))[:2] == [
        (0, 2, ("audience",), 2),
        (2, 6, ("audience", "backdrop"), 2),
    ]


def test_parameters_with_equal_fork_steps_fork_together() -> None:
    tree = build_tree(_settled(_campaign(), geography=2))
    assert [edge.start for edge in tree.edges] == [0] + [2] * 6


def test_exact_shares_nothing_but_equal_prompts() -> None:
    exact = [
        variant(backdrop, profile=QualityProfile.EXACT, request_id=str(i))
        for i, backdrop in enumerate(("snow", "a beach", "snow"))
    ]
    members = plan(exact).groups[0].members
    assert all(not member.fork_steps for member in members)
    tree = build_tree(settle_forks(exact, fork_steps={}))
    assert [(edge.start, edge.stop) for edge in tree.edges] == [(0, STEPS)] * 2
    assert sorted(edge.members for edge in tree.edges) == [("0", "2"), ("1",)]


def test_a_slot_that_stands_twice_counts_with_both_values() -> None:
    request = variant("snow", "kids", "Rio")
    first, *others = request.slots
    doubled = replace(request, slots=(first, replace(others[0], name="backdrop"), others[1]))
    assert doubled.slot_values() == {"backdrop": "snow\x1fkids", "place": "Rio"}


def test_before_calibration_a_stronger_promise_forks_earlier() -> None:
    weakest_first = ("draft", "fast", "consistent")
    for kind in ("geography", "audience", "backdrop", "choice", "text"):
        steps = [default_fork_steps(QualityProfile(name), 30)[kind] for name in weakest_first]
        assert steps == sorted(steps, reverse=True)
        assert 30 > steps[0] > steps[-1] >= 1


@pytest.mark.parametrize("profile", [QualityProfile.EXACT, QualityProfile.FAITHFUL])
def test_before_calibration_closeness_allows_no_shared_step(profile: QualityProfile) -> None:
    requests = [variant(f"backdrop {i}", profile=profile) for i in range(3)]
    (group,) = plan(requests).groups
    assert [dict(member.fork_steps) for member in group.members] == [{}] * 3


def _calibration(**changes: object) -> Calibration:
    settings = variant("snow").settings
    known = Calibration(
        weights_fingerprint="f",
        device_kind="cpu",
        width=settings.width,
        height=settings.height,
        num_frames=settings.num_frames,
        solver="Euler",
        num_inference_steps=settings.num_inference_steps,
        guidance_scale=settings.guidance_scale,
        profile=settings.profile,
        step_seconds=0.1,
        text_seconds=0.1,
        decode_seconds=0.1,
        clip_units=clip_units(settings),
        fork_steps={"backdrop": 1, "audience": 3, "geography": 5},
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def test_measured_fork_steps_win_where_they_were_measured() -> None:
    requests = _campaign()
    measured = _calibration(fork_steps={"geography": 8, "backdrop": 99})
    (first, *_) = plan(requests, calibration=measured).groups[0].members
    # The last step is never shared.
    assert first.fork_steps == {"backdrop": 9, "place": 8}
    (default, *_) = plan(requests).groups[0].members
    for other in ({"num_inference_steps": 30}, {"profile": QualityProfile.FAST}, {"width": 160}):
        misfit = replace(measured, **other)  # type: ignore[arg-type]
        (first, *_) = plan(requests, calibration=misfit).groups[0].members
        assert first.fork_steps == default.fork_steps != {"backdrop": 9, "place": 8}


def test_a_group_is_priced_by_its_own_edges() -> None:
    requests = _campaign()
    (group,) = plan(requests, calibration=_calibration()).groups
    sizes = requests[0].settings
    unit, decode = 2 * forward_units(sizes), decode_units(sizes)
    # One root of 1 step, two branches of 4, six leaves of 5; each leaf is decoded.
    assert sum(m.shared_units for m in group.members) == pytest.approx(39 * unit + 6 * decode)
    assert group.members[0].shared_units == pytest.approx((1 / 6 + 4 / 3 + 5) * unit + decode)


def test_groups_are_whole_subtrees_and_each_pays_for_its_root() -> None:
    planned = plan(_campaign(), max_group=3, calibration=_calibration())
    ids = [[member.request_id for member in group.members] for group in planned.groups]
    assert [{name.split("/")[0] for name in group} for group in ids] == [{"a beach"}, {"snow"}]
    whole = plan(_campaign(), calibration=_calibration())
    unit = 2 * forward_units(_campaign()[0].settings)
    assert planned.shared_units - whole.shared_units == pytest.approx(unit)


def test_small_subtrees_are_claimed_together() -> None:
    requests = [variant(f"backdrop {i}") for i in range(10)]
    assert [len(group.members) for group in plan(requests, max_group=4).groups] == [4, 4, 2]


def test_one_more_value_costs_the_steps_after_its_fork() -> None:
    requests = _campaign()
    before = plan(requests, calibration=_calibration())
    prices = before.unit_price_by_parameter
    grown = plan([*requests, variant("snow", place="Lima")], calibration=_calibration())
    added = (grown.shared_units - before.shared_units) / clip_units(requests[0].settings)
    assert prices["place"] == pytest.approx(added)
    assert prices["place"] < prices["audience"] < prices["backdrop"] < 1


values = st.sampled_from(["a", "b", "c"])
rows = st.lists(st.tuples(values, values, values), min_size=1, max_size=24)


def _requests(drawn: list[tuple[str, str, str]]) -> list[GenerationRequest]:
    return [variant(*row, request_id=f"r{place}") for place, row in enumerate(drawn)]


def _by_id(planned: Plan) -> dict[str, tuple[str, float, tuple[tuple[str, int], ...]]]:
    return {
        member.request_id: (
            group.group_key,
            member.shared_units,
            tuple(sorted(member.fork_steps.items())),
        )
        for group in planned.groups
        for member in group.members
    }


@settings(max_examples=60, deadline=None)
@given(rows)
def test_every_request_stands_at_exactly_one_leaf(drawn: list[tuple[str, str, str]]) -> None:
    tree = build_tree(_settled(_requests(drawn)))
    at_leaves = Counter(m for edge in tree.edges if tree.is_leaf(edge) for m in edge.members)
    assert at_leaves == Counter(f"r{place}" for place in range(len(drawn)))
    assert sum(tree.is_leaf(edge) for edge in tree.edges) == len(set(drawn))
    for way in tree.ways():
        assert [edge.start for edge in way] == [0, *[edge.stop for edge in way[:-1]]]
        for before, after in pairwise(way):
            assert set(before.fixed) < set(after.fixed)
            assert set(before.members) >= set(after.members)


@settings(max_examples=60, deadline=None)
@given(rows, st.integers(1, 8))
def test_shares_add_up_to_the_cost_of_all_edges(
    drawn: list[tuple[str, str, str]], max_group: int
) -> None:
    requests = {request.request_id: request for request in _requests(drawn)}
    sizes = requests["r0"].settings
    planned = plan(requests.values(), max_group=max_group, calibration=_calibration())
    for group in planned.groups:
        assert len(group.members) <= max_group
        tree = build_tree(
            [with_fork_steps(requests[m.request_id], m.fork_steps) for m in group.members]
        )
        steps = sum(edge.num_steps for edge in tree.edges)
        leaves = sum(tree.is_leaf(edge) for edge in tree.edges)
        cost = 2 * steps * forward_units(sizes) + leaves * decode_units(sizes)
        assert sum(member.shared_units for member in group.members) == pytest.approx(cost)
    assert planned.shared_units <= planned.full_units * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(rows, st.integers(1, 8), st.randoms(use_true_random=False))
def test_the_plan_depends_on_the_set_of_requests_alone(
    drawn: list[tuple[str, str, str]], max_group: int, shuffler: random.Random
) -> None:
    requests = _requests(drawn)
    planned = plan(requests, max_group=max_group, calibration=_calibration())
    shuffler.shuffle(requests)
    assert plan(requests, max_group=max_group, calibration=_calibration()) == planned


@settings(max_examples=60, deadline=None)
@given(rows, st.data())
def test_what_is_left_of_a_group_takes_the_same_edges(
    drawn: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    requests = _requests(drawn)
    ways = _by_id(plan(requests, calibration=_calibration()))
    told = [with_fork_steps(each, dict(ways[each.request_id][2])) for each in requests]
    left = data.draw(st.lists(st.sampled_from(told), min_size=1, unique_by=lambda r: r.request_id))

    def edges(tree: DenoisingTree) -> set[tuple[int, int, object]]:
        return {(edge.start, edge.stop, edge.fixed) for edge in tree.edges}

    assert edges(build_tree(left)) <= edges(build_tree(told))
    again = _by_id(plan(left))
    assert {name: way[2] for name, way in again.items()} == {name: ways[name][2] for name in again}


def test_the_words_of_open_slots_leave_no_trace() -> None:
    request = variant("snow", "kids", "Rio")
    assert without_words(request, keep={"backdrop", "audience", "place"}) == request.prompt
    assert without_words(request, keep={"audience", "place"}) == "a red sneaker on, for kids, Rio"
    assert without_words(request, keep={"backdrop"}) == "a red sneaker on snow, for"


def _texts(edge: Edge, requests: list[GenerationRequest], stem: StemConditioning) -> object:
    return conditioning_texts(
        edge, {each.request_id: each for each in requests}, stems=Stems(default=stem)
    )


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        (StemConditioning.WORDS_REMOVED, ("a red sneaker on, for runners, Paris",)),
        (StemConditioning.CONTROL, ("a red sneaker on a beach, for runners, Paris",)),
        (
            StemConditioning.MEAN_EMBEDDING,
            (
                "a red sneaker on a beach, for runners, Paris",
                "a red sneaker on snow, for runners, Paris",
            ),
        ),
    ],
)
def test_a_shared_edge_has_the_texts_of_its_stem_and_a_leaf_its_own(
    stem: StemConditioning, expected: tuple[str, ...]
) -> None:
    requests = _settled([variant("snow"), variant("a beach")])
    root, leaf, _ = build_tree(requests).edges
    assert _texts(root, requests, stem) == expected
    assert _texts(leaf, requests, stem) == ("a red sneaker on a beach, for runners, Paris",)


def test_a_fork_beyond_the_last_step_is_refused(model_dir: object) -> None:
    request = forked(variant("snow"), place=STEPS)
    with pytest.raises(InvalidRequest, match="fork_step is 10; choose 0 to 9"):
        validate_request(request, model_dir=model_dir)  # type: ignore[arg-type]
