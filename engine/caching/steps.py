"""Forwards that one run need not compute: skipped steps, held guidance, equal rows.

The pipeline stays as it is: for the time of a segment its transformer's `cache_context` and
`forward` are wrapped, which tells the conditional forward from the unconditional one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from diffusers import FirstBlockCacheConfig, MagCacheConfig
from diffusers.hooks.mag_cache import nearest_interp

from engine.caching.wrapping import replaced
from engine.skipping import extrapolated_from
from engine.types import StepCacheMethod, StepCachePolicy

# MagCache never skips in the first fifth of a run: the composition is decided there.
MAG_RETENTION = 0.2
# The unconditional forwards of siblings that start from one state.
EQUAL_ROWS = "unconditional"
DIFFUSERS_METHODS = (StepCacheMethod.FIRST_BLOCK, StepCacheMethod.MAG)


@dataclass(frozen=True, kw_only=True)
class SegmentPlace:
    """Steps [start, stop) of a run of `num_steps`.

    `row_parents` has for each row of the batch the first row that started from the same state.
    """

    start: int
    stop: int
    num_steps: int
    row_parents: Sequence[int]


@dataclass
class ForwardTally:
    """Forwards of a segment counted in rows of the batch: computed, and saved by kind.

    `memory` is what the step cache needs to go on from the segment's last step; it is there when
    the segment is over.
    """

    computed: float = 0.0
    saved: dict[str, float] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)

    def save(self, kind: str, rows: float) -> None:
        self.saved[kind] = self.saved.get(kind, 0.0) + rows


def can_pause(policy: StepCachePolicy | None) -> bool:
    """Whether an edge may stop in its midst: what diffusers' caches know cannot be taken out."""
    return policy is None or policy.method not in DIFFUSERS_METHODS


@contextmanager
def spared_forwards(
    pipeline: Any,
    place: SegmentPlace,
    *,
    policy: StepCachePolicy | None,
    memory: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[ForwardTally]:
    """Spare what the policy and equal rows allow while the body runs the segment, and count.

    `memory` is that of the segment before, where this one goes on in the midst of an edge.
    """
    tally = ForwardTally()
    with ExitStack() as stack:
        for name in ("transformer", "transformer_2"):
            transformer = getattr(pipeline, name, None)
            if transformer is not None:
                if policy is not None and policy.method in DIFFUSERS_METHODS:
                    transformer.enable_cache(_cache_config(policy, place))
                    stack.callback(transformer.disable_cache)
                forwards = _Forwards(transformer, place, policy, tally)
                forwards.recall(memory.get(name, {}))
                stack.enter_context(forwards.wrapped())
                stack.callback(forwards.remember, name)
        yield tally


class _Forwards:
    """Stands before one transformer for the time of a segment."""

    def __init__(
        self,
        transformer: Any,
        place: SegmentPlace,
        policy: StepCachePolicy | None,
        tally: ForwardTally,
    ) -> None:
        self._transformer = transformer
        self._place = place
        self._tally = tally
        self._has_step_cache = policy is not None and policy.method in DIFFUSERS_METHODS
        self._lines: dict[str, _Line] = {}
        self._computed_steps = extrapolated_from(policy, place.num_steps)
        hold_from = policy.hold_guidance_from if policy else None
        self._hold_step = None if hold_from is None else int(hold_from * place.num_steps)
        self._context = ""
        self._step = place.start
        # Conditional forwards so far; the step at hand is the last one of them.
        self._num_conditional = 0
        self._conditional: torch.Tensor | None = None
        self._difference: torch.Tensor | None = None
        self._has_run_blocks = False

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Go on from what `remember` kept."""
        self._lines = {
            context: _Line(points) for context, points in memory.get("lines", {}).items()
        }
        self._conditional = memory.get("conditional")
        self._difference = memory.get("difference")

    def remember(self, name: str) -> None:
        """Keep in the tally what the next segment of the same edge needs."""
        memory = {
            "lines": {context: line.points for context, line in self._lines.items()},
            "conditional": self._conditional,
            "difference": self._difference,
        }
        self._tally.memory[name] = {
            what: value for what, value in memory.items() if value is not None
        }

    @contextmanager
    def wrapped(self) -> Iterator[None]:
        self._original_forward = self._transformer.forward
        self._original_context: Any = getattr(self._transformer, "cache_context", None)
        handle = self._watch_blocks() if self._has_step_cache else None
        try:
            stand_ins = {"forward": self._forward, "cache_context": self._cache_context}
            if self._original_context is None:
                del stand_ins["cache_context"]
            with replaced(self._transformer, **stand_ins):
                yield
        finally:
            if handle is not None:
                handle.remove()

    def _cache_context(self, name: str, **kwargs: Any) -> Any:
        self._context = name
        # A pipeline with two transformers says the step; else this one runs them all.
        self._step = self._place.start + kwargs.get("step_index", self._num_conditional)
        return self._original_context(name, **kwargs)

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        rows = kwargs["hidden_states"].shape[0]
        if self._computed_steps is None:
            return self._branch(args, kwargs, rows)
        line = self._lines.setdefault(self._context, _Line())
        time = float(kwargs["timestep" if "timestep" in kwargs else "timesteps"].max())
        if self._step not in self._computed_steps and line.is_drawn:
            self._num_conditional += self._context != "uncond"
            self._tally.save("extrapolation", rows)
            return (line.at(time),)
        output = self._branch(args, kwargs, rows)
        line.add(time, output[0])
        return output

    def _branch(self, args: tuple[Any, ...], kwargs: dict[str, Any], rows: int) -> Any:
        """One branch's prediction, computed or held."""
        if self._context != "uncond":
            self._num_conditional += 1
            output = self._computed(args, kwargs)
            if self._hold_step is not None:
                self._conditional = output[0]
            return output
        held = self._held()
        if held is not None:
            self._tally.save("guidance", rows)
            return (held,)
        output = self._unconditional(args, kwargs)
        if self._conditional is not None:
            self._difference = self._conditional - output[0]
        return output

    def _held(self) -> torch.Tensor | None:
        """The unconditional prediction that the last computed guidance makes, once it is held."""
        if self._hold_step is None or self._step < self._hold_step:
            return None
        if self._conditional is None or self._difference is None:
            return None
        return self._conditional - self._difference

    def _unconditional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The unconditional branch; siblings that start from one state compute it once."""
        parents = list(self._place.row_parents)
        firsts = sorted(set(parents))
        # A step cache keeps tensors of a row count from step to step.
        if self._num_conditional > 1 or len(firsts) == len(parents) or self._has_step_cache:
            return self._computed(args, kwargs)
        device = kwargs["hidden_states"].device
        chosen = torch.tensor(firsts, device=device)
        fewer = {
            name: value.index_select(0, chosen)
            if isinstance(value, torch.Tensor) and value.shape[:1] == (len(parents),)
            else value
            for name, value in kwargs.items()
        }
        output = self._computed(args, fewer)
        self._tally.save(EQUAL_ROWS, len(parents) - len(firsts))
        back = torch.tensor([firsts.index(parent) for parent in parents], device=device)
        return (output[0].index_select(0, back), *output[1:])

    def _computed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rows = kwargs["hidden_states"].shape[0]
        self._has_run_blocks = False
        output = self._original_forward(*args, **kwargs)
        if self._has_step_cache and not self._has_run_blocks:
            self._tally.save("step_cache", rows)
        else:
            self._tally.computed += rows
        return output

    def _watch_blocks(self) -> Any:
        """Notice when the last block computes: a step cache leaves its parts uncalled."""
        blocks = getattr(self._transformer, "blocks", None) or self._transformer.transformer_blocks

        def note(*_: Any) -> None:
            self._has_run_blocks = True

        return next(blocks[-1].children()).register_forward_pre_hook(note)


class _Line:
    """The line through the last two predictions of one branch, over time.

    Predictions of a flow-matching model change smoothly from step to step, so the line is a
    two-step Adams-Bashforth method with uneven steps (Hairer, Norsett and Wanner, III.5).
    """

    def __init__(self, points: Sequence[list[Any]] = ()) -> None:
        # Pairs of time and prediction.
        self.points = list(points)

    @property
    def is_drawn(self) -> bool:
        return len(self.points) == 2 and self.points[0][0] != self.points[1][0]

    def add(self, time: float, prediction: torch.Tensor) -> None:
        self.points = [*self.points[-1:], [time, prediction]]

    def at(self, time: float) -> torch.Tensor:
        (first, before), (second, latest) = self.points
        return torch.lerp(before, latest, (time - first) / (second - first))


def _cache_config(policy: StepCachePolicy, place: SegmentPlace) -> Any:
    """Diffusers' configuration for a segment, whose first step is always computed."""
    if policy.method is StepCacheMethod.FIRST_BLOCK:
        return FirstBlockCacheConfig(threshold=policy.threshold)
    num_steps = place.stop - place.start
    ratios = nearest_interp(torch.tensor(policy.mag_ratios), place.num_steps)
    retained = max(0.0, MAG_RETENTION * place.num_steps - place.start)
    return MagCacheConfig(
        threshold=policy.threshold,
        max_skip_steps=policy.max_skip_steps,
        retention_ratio=min(1.0, retained / num_steps),
        num_inference_steps=num_steps,
        mag_ratios=ratios[place.start : place.stop],
    )
