"""What sharing an edge saves a sibling, and from which fork on that pays for its checks; no torch.

Every variant that shares steps may be screened by the guard, so a fork that saves less than its
screenings take makes a batch dearer, and less sure to cost what was quoted.
"""

from __future__ import annotations

from engine.guarded import SCREEN_EVERY
from engine.skipping import edge_forwards
from engine.types import RenderSettings, StepCachePolicy
from engine.units import decode_units, forward_units

# A screening renders a variant in its own way, and while its values are new a control as well.
_RENDERS_PER_SCREENING = 2


def own_way_units(settings: RenderSettings, step_cache: StepCachePolicy | None) -> float:
    """Work units of a render that shares nothing and skips what it may."""
    return _units_from(settings, step_cache, 0)


def least_worthwhile_fork(
    settings: RenderSettings, step_cache: StepCachePolicy | None
) -> int | None:
    """The earliest fork step that saves a sibling more than screening takes; None without one."""
    own_way = own_way_units(settings, step_cache)
    price = own_way * _RENDERS_PER_SCREENING / SCREEN_EVERY
    for fork in range(1, settings.last_step):
        if own_way - _units_from(settings, step_cache, fork) > price:
            return fork
    return None


def _units_from(settings: RenderSettings, step_cache: StepCachePolicy | None, fork: int) -> float:
    forwards = edge_forwards(settings, step_cache, fork, settings.last_step)
    return forwards * forward_units(settings) + decode_units(settings)
