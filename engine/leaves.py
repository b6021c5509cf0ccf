"""What a tree is run like and what comes out of it: leaves, and the results that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from engine.branches import full_forwards
from engine.profiles import Coupling
from engine.stems import Stems
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    StageSeconds,
    StepCachePolicy,
)
from engine.watching import Watch

Outcome = GenerationResult | GenerationFailure


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a tree is run where that is not `exact`: what conditions shared edges, what is skipped.

    `coupling` says how closely variants follow the family's control. Where the tree forks stands
    in its requests.
    """

    stems: Stems
    step_cache: StepCachePolicy | None = None
    coupling: Coupling | None = None


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A finished render, and the requests that ask for its pixels and are still wanted.

    `result` is that of the first of them; `latents` are the picture's,
    (1, C, ...), a place behind the channels for each token.
    """

    requests: Sequence[GenerationRequest]
    result: GenerationResult
    latents: torch.Tensor

    def outcomes(self, watch: Watch) -> Iterator[GenerationResult]:
        """The results of its requests that have not ended, which end with them."""
        for place, request in enumerate(watch.unended(self.requests)):
            watch.end(request)
            if place:
                yield _reuse(self.result, request)
            else:
                fps = request.settings.fps
                yield replace(self.result, request_id=request.request_id, fps=fps)


def _reuse(result: GenerationResult, request: GenerationRequest) -> GenerationResult:
    """The same frames for another request that asks for the same pixels."""
    settings = request.settings
    spared = {"computed": 0.0, "saved": {"duplicate": full_forwards(settings)}}
    return replace(
        result,
        request_id=request.request_id,
        fps=settings.fps,
        seconds=StageSeconds(),
        forwards_computed=0.0,
        work_units=0.0,
        guard_units=0.0,
        provenance=result.provenance | {"reused_from": result.request_id, "forwards": spared},
    )
