"""A tree in trouble: what is cancelled, fails or runs out of memory, and what the others get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from engine.engine import Engine
from engine.segments import run_segment
from engine.types import (
    Progress,
)
from tests.unit.engine.tree_tools import (
    psnr_of,
    render_all,
    render_split,
    tree_family,
)


def test_a_cancelled_sibling_leaves_the_others_as_they_are(batched: Engine) -> None:
    expected = render_all(batched, tree_family())
    steps: list[Progress] = []
    gone = "snow/runners/Rio"
    results, failures = render_split(
        batched,
        tree_family(),
        on_progress=steps.append,
        should_cancel=lambda name: name == gone and any(each.step == 5 for each in steps),
    )
    assert {name: failure.code for name, failure in failures.items()} == {gone: "cancelled"}
    assert set(results) == {r.request_id for r in tree_family()} - {gone}
    for name, result in results.items():
        np.testing.assert_array_equal(result.frames, expected[name].frames)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_branch_cancelled_with_its_children_leaves_its_sibling_and_its_parent(
    make_engine: Callable[..., Engine], batch_size: int
) -> None:
    engine = make_engine(batch_size=batch_size)
    expected = render_all(engine, tree_family())
    steps: list[Progress] = []
    results, failures = render_split(
        engine,
        tree_family(),
        on_progress=steps.append,
        should_cancel=lambda name: name.startswith("snow") and any(s.step == 3 for s in steps),
    )
    assert {failure.code for failure in failures.values()} == {"cancelled"}
    assert set(failures) == {"snow/runners/Paris", "snow/runners/Rio"}
    assert max(s.step for s in steps if s.request_id in failures) <= 3
    assert set(results) == set(expected) - set(failures)
    for name, result in results.items():
        # With fewer rows in a batch sums are taken in another order.
        assert psnr_of(result.frames, expected[name].frames) > (60 if batch_size > 1 else 1000)


def test_a_tree_that_nobody_wants_any_more_stops_at_its_step(batched: Engine) -> None:
    steps: list[Progress] = []
    results, failures = render_split(
        batched,
        tree_family(),
        on_progress=steps.append,
        should_cancel=lambda _: any(each.step == 3 for each in steps),
    )
    assert (results, len(failures)) == ({}, 4)
    assert max(each.step for each in steps) == 3


def test_a_sibling_whose_prompt_cannot_be_read_fails_alone(
    batched: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    render_all(batched, tree_family()[:1])
    runner = batched.models.get("adloom-tiny").model.runner
    encode = runner.encode

    def refuse(text: str) -> torch.Tensor:
        if text.endswith("a beach, for runners, Rio"):
            raise ZeroDivisionError(text)
        return encode(text)

    monkeypatch.setattr(runner, "encode", refuse)
    results, failures = render_split(batched, tree_family())
    assert (len(results), list(failures)) == (3, ["a beach/runners/Rio"])
    assert failures["a beach/runners/Rio"].code == "render_error"


def test_a_shared_edge_that_fails_fails_those_that_stand_on_it(
    batched: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    render_all(batched, tree_family()[:1])
    runner = batched.models.get("adloom-tiny").model.runner
    encode = runner.encode

    def refuse(text: str) -> torch.Tensor:
        if text == "a red sneaker on snow, for runners":
            raise ZeroDivisionError(text)
        return encode(text)

    monkeypatch.setattr(runner, "encode", refuse)
    results, failures = render_split(batched, tree_family())
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
    results = render_all(engine, tree_family(places=("Paris", "Rio", "Oslo")))
    assert len(results) == 6
    # Root, two backdrops, four of the six leaves in vain, then two at a time.
    assert sizes == [1, 2, 4, 2, 2, 2]


def test_shared_edges_beyond_the_memory_are_run_one_by_one(
    make_engine: Callable[..., Engine], one_by_one: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = render_all(one_by_one, tree_family())
    failed: list[int] = []

    def small_memory(pipeline: Any, **call: Any) -> Any:
        rows = call["prompt_embeds"].shape[0]
        if rows > 1:
            failed.append(call["stop"])
            raise torch.OutOfMemoryError("too much")
        return run_segment(pipeline, **call)

    monkeypatch.setattr("engine.edge_runner.run_segment", small_memory)
    results = render_all(make_engine(batch_size=4), tree_family())
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
    results, failures = render_split(batched, tree_family())
    assert not results
    assert {(each.code, each.is_retryable) for each in failures.values()} == {
        ("out_of_memory", True)
    }
