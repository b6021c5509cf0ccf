"""A family that forks twice, and what the tests of trees do with it."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.engine import Engine
from engine.states import LatentState
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    QualityProfile,
)
from tests.unit.engine.families import forked, variant

STEPS = 6
# Forwards of one render alone.
FULL = 2 * STEPS


def tree_family(
    backdrops: Sequence[str] = ("snow", "a beach"),
    places: Sequence[str] = ("Paris", "Rio"),
    **changes: Any,
) -> list[GenerationRequest]:
    """Backdrops fork at step 2, places at step 4 of 6; nobody follows a control."""
    changes.setdefault("profile", QualityProfile.FAITHFUL)
    return [
        forked(variant(backdrop, place=place, steps=STEPS, **changes), backdrop=2, place=4)
        for backdrop, place in product(backdrops, places)
    ]


def render_all(
    engine: Engine, requests: Iterable[GenerationRequest], **callbacks: Any
) -> dict[str, GenerationResult]:
    outcomes = list(engine.generate(requests, **callbacks))
    assert all(isinstance(outcome, GenerationResult) for outcome in outcomes), outcomes
    return {o.request_id: o for o in outcomes if isinstance(o, GenerationResult)}


def render_split(
    engine: Engine, requests: Iterable[GenerationRequest], **callbacks: Any
) -> tuple[dict[str, GenerationResult], dict[str, GenerationFailure]]:
    outcomes = list(engine.generate(requests, **callbacks))
    return (
        {o.request_id: o for o in outcomes if isinstance(o, GenerationResult)},
        {o.request_id: o for o in outcomes if isinstance(o, GenerationFailure)},
    )


def num_states() -> int:
    gc.collect()
    return sum(type(each) is LatentState for each in gc.get_objects())


def psnr_of(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> float:
    error = np.mean((left.astype(np.float64) - right) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


def computed(results: dict[str, GenerationResult]) -> float:
    return sum(result.forwards_computed for result in results.values())
