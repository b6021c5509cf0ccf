"""Variants follow their family's control where they hardly differ from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.caching.shared import SharedCache
from engine.config import EngineConfig
from engine.coupling import FamilyControl
from engine.distances import drift
from engine.engine import Engine
from engine.guarded import control_of
from engine.leaves import Leaf, Manner
from engine.profiles import COUPLINGS, Coupling
from engine.stems import Stems
from engine.tree_runner import TreeRunner
from engine.types import GenerationRequest, QualityProfile, StemConditioning
from engine.watching import Watch
from tests.unit.engine.families import forked, variant
from tests.unit.engine.tree_tools import render_all

FIRM = Coupling(strength=0.5, first_share=0.2)
BACKDROPS = ("snow", "a beach", "a studio", "a forest")


@pytest.fixture
def family() -> list[GenerationRequest]:
    return [forked(variant(backdrop)) for backdrop in BACKDROPS]


@pytest.fixture
def render(
    make_engine: Callable[..., Engine],
) -> Callable[..., dict[str, Leaf]]:
    model = make_engine().models.get("adloom-tiny").trees.model

    def run(
        requests: Sequence[GenerationRequest], coupling: Coupling | None, *, batch_size: int = 4
    ) -> dict[str, Leaf]:
        config = EngineConfig(batch_size=batch_size)
        runner = TreeRunner(model, config=config, cache=SharedCache(limit_bytes=0))
        manner = Manner(stems=Stems(default=StemConditioning.CONTROL), coupling=coupling)
        watch = Watch(on_progress=None, should_cancel=None)
        leaves = list(runner.start(requests, watch, manner=manner))
        assert all(isinstance(leaf, Leaf) for leaf in leaves), leaves
        return {leaf.requests[0].request_id: leaf for leaf in leaves if isinstance(leaf, Leaf)}

    return run


@pytest.mark.parametrize("batch_size", [4, 2], ids=["in one batch", "in later batches"])
def test_what_hardly_changes_moves_less_than_without_a_control(
    render: Callable[..., dict[str, Leaf]], family: list[GenerationRequest], batch_size: int
) -> None:
    own, beside = (render(family, each, batch_size=batch_size) for each in (None, FIRM))
    control = control_of(family).request_id
    for name in own.keys() - {control}:
        change = beside[name].latents - beside[control].latents
        own_change = own[name].latents - own[control].latents
        assert 0 < drift(change, own_change) < 0.8
        facts = beside[name].result.provenance
        assert facts["steps_beside_control"] == 8
        assert facts["rendered_as"] == "consistent"


def test_the_control_itself_is_as_it_would_be_without_the_others(
    render: Callable[..., dict[str, Leaf]], family: list[GenerationRequest]
) -> None:
    control = control_of(family)
    beside = render(family, FIRM, batch_size=1)[control.request_id]
    (alone,) = render([control], None).values()
    np.testing.assert_array_equal(beside.result.frames, alone.result.frames)
    assert beside.result.provenance["steps_beside_control"] == 0


def test_whatever_the_order_the_same_variant_is_the_control(
    render: Callable[..., dict[str, Leaf]], family: list[GenerationRequest]
) -> None:
    one_way, other_way = (render(each, FIRM, batch_size=1) for each in (family, family[::-1]))
    for name, leaf in one_way.items():
        np.testing.assert_array_equal(leaf.result.frames, other_way[name].result.frames)


def test_an_exact_render_follows_nobody(
    render: Callable[..., dict[str, Leaf]], family: list[GenerationRequest]
) -> None:
    exact = [
        replace(each, settings=replace(each.settings, profile=QualityProfile.EXACT))
        for each in family
    ]
    own, beside = render(exact, None), render(exact, FIRM)
    for name, leaf in own.items():
        np.testing.assert_array_equal(leaf.result.frames, beside[name].result.frames)


def test_consistent_and_fast_follow_a_control_and_faithful_does_not(
    make_engine: Callable[..., Engine],
) -> None:
    engine = make_engine(batch_size=4)
    for profile in (QualityProfile.CONSISTENT, QualityProfile.FAST, QualityProfile.FAITHFUL):
        family = [forked(variant(backdrop, profile=profile)) for backdrop in BACKDROPS[:2]]
        steps = {r.provenance["steps_beside_control"] for r in render_all(engine, family).values()}
        assert steps == ({0, 8} if profile in COUPLINGS else {0})


@pytest.mark.parametrize("shape", [(2, 4, 3, 6, 5), (2, 90, 4)], ids=["frames", "packed"])
def test_a_token_goes_the_farther_the_nearer_it_is(shape: tuple[int, ...]) -> None:
    channels = 2 if len(shape) == 3 else 1
    way = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    control = FamilyControl(Coupling(strength=0.4), request_id="x")
    shares = control._shares(way)
    lengths = way.square().sum(dim=channels, keepdim=True)
    for share, length in zip(shares, lengths, strict=True):
        order = length.flatten().argsort()
        assert torch.equal(share.flatten()[order], share.flatten().sort(descending=True).values)
        assert share.flatten().median().item() == pytest.approx(0.2, abs=0.02)
        assert share.max().item() <= 0.4
    # Where the two are equal nothing is divided by nothing.
    assert torch.isfinite(control._shares(torch.zeros(shape))).all()
