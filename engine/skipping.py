"""Which forwards an edge of a run computes, where its step cache follows a fixed rule; no torch.

The runner skips by this rule and the plan prices by it, so both count the same forwards.
"""

from __future__ import annotations

from functools import lru_cache

from engine.registry import forwards_per_step
from engine.types import RenderSettings, StepCacheMethod, StepCachePolicy


def extrapolated_from(policy: StepCachePolicy | None, num_steps: int) -> frozenset[int] | None:
    """Steps that extrapolation computes wherever edges begin; None without extrapolation."""
    if policy is None or policy.method is not StepCacheMethod.EXTRAPOLATION:
        return None
    first = int(policy.full_steps * num_steps)
    grid = range(first + policy.interval - 1, num_steps, policy.interval)
    return frozenset((*range(first), *grid, num_steps - 1))


@lru_cache(maxsize=1024)
def edge_forwards(
    settings: RenderSettings,
    policy: StepCachePolicy | None,
    start: int,
    stop: int,
    begun_at: int | None = None,
) -> int:
    """Forwards of one row over steps [start, stop) that run as one edge.

    `begun_at` is where the edge began if that was before, so that its step cache knows more.

    Caches that skip by what they see (FirstBlock, MagCache) count as if they never skipped.
    """
    if begun_at is not None and begun_at < start:
        whole = edge_forwards(settings, policy, begun_at, stop)
        return whole - edge_forwards(settings, policy, begun_at, start)
    on_grid = extrapolated_from(policy, settings.num_inference_steps)
    # A line needs two points, and the conditioning changes where an edge begins.
    steps = [
        step
        for step in range(start, stop)
        if on_grid is None or step in on_grid or step < start + 2
    ]
    per_step = forwards_per_step(settings)
    forwards = len(steps) * per_step
    if policy is None or policy.hold_guidance_from is None or per_step < 2:
        return forwards
    hold_step = int(policy.hold_guidance_from * settings.num_inference_steps)
    # The difference to hold is that of an earlier step of the same edge.
    return forwards - sum(step >= hold_step for step in steps[1:])
