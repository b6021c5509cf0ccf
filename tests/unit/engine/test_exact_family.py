"""A family in `exact`: a tree of depth one, and the bits of plain diffusers at each leaf."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from engine.config import EngineConfig
from engine.engine import Engine
from engine.plan import plan
from engine.tree import build_tree
from engine.types import GenerationResult, QualityProfile
from tests.unit.engine.families import forked, variant
from tests.unit.engine.plain import render_plainly


def test_a_family_in_exact_equals_plain_diffusers_bit_for_bit(model_dir: Path) -> None:
    requests = [
        variant(backdrop, place=place, steps=3, profile=QualityProfile.EXACT)
        for backdrop, place in product(("snow", "a beach"), ("Paris", "Rio"))
    ]
    (group,) = plan(requests).groups
    assert len(group.members) == len(requests)
    tree = build_tree([forked(request) for request in requests])
    assert [edge.parent for edge in tree.edges] == [None] * len(requests)
    # Everything that other profiles use is on: batches, the fast way, caches, the guard.
    engine = Engine(EngineConfig(model_dir=model_dir, device="cpu"))
    results = {outcome.request_id: outcome for outcome in engine.generate(requests)}
    for request in requests:
        result = results[request.request_id]
        assert isinstance(result, GenerationResult), result
        assert len(result.provenance["edges"]) == 1
        assert result.provenance["rendered_as"] == "exact"
        np.testing.assert_array_equal(result.frames, render_plainly(model_dir / "tiny", request))
