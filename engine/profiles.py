"""What each quality profile promises, as data, and what it may skip to be quicker; no torch.

exact        The bits of a plain diffusers run: nothing is shared, batched or skipped.
faithful     Every variant stays close to its own exact render: PSNR or SSIM.
consistent   A family looks like one shoot: the asked parameter changes as in the exact renders,
             and what was not asked to change moves less than it does there.
fast         As `consistent`, with more of the change and of the calm given up.
draft        For previews: one sees which value was asked for; no word about the rest.

A promise holds for every variant and every parameter, never on average. Calibration looks for the
cheapest way to keep it, and the guard checks it on sampled variants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from engine.types import QualityProfile, StepCacheMethod, StepCachePolicy

# One in so many approximate renders is rendered exactly as well and compared.
GUARD_EVERY: Final = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Distance:
    """How far a render is from its exact one, and how its change from a control compares.

    `psnr_db` and `ssim` compare the frames of render and exact. A change is the way from a control
    (a sibling of the same run) to the variant: `projection` is the part of the exact renders'
    change that came (1: all of it, 0: the control came back), `drift` how far the variant moved
    where it should not, as a multiple of the exact renders. Both are None without a control.
    """

    psnr_db: float
    ssim: float
    projection: float | None = None
    drift: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """Bounds that a `Distance` keeps; None bounds nothing. Of PSNR and SSIM one suffices."""

    min_psnr_db: float | None = None
    min_ssim: float | None = None
    min_projection: float | None = None
    max_drift: float | None = None

    @property
    def needs_control(self) -> bool:
        """Whether it can be judged only beside a sibling."""
        return self.min_projection is not None or self.max_drift is not None

    def is_kept(self, distance: Distance) -> bool:
        """What was not measured, for want of a control, is not held against a render."""
        return (
            self._is_close(distance)
            and _at_least(distance.projection, self.min_projection)
            and _at_least(self.max_drift, distance.drift)
        )

    def _is_close(self, distance: Distance) -> bool:
        bounds = ((distance.psnr_db, self.min_psnr_db), (distance.ssim, self.min_ssim))
        asked = [value >= bound for value, bound in bounds if bound is not None]
        return any(asked) or not asked


PROMISES: Final[Mapping[QualityProfile, Promise]] = MappingProxyType(
    {
        QualityProfile.EXACT: Promise(),
        QualityProfile.FAITHFUL: Promise(min_psnr_db=30.0, min_ssim=0.95),
        QualityProfile.CONSISTENT: Promise(min_projection=0.8, max_drift=1.0),
        QualityProfile.FAST: Promise(min_projection=0.6, max_drift=1.25),
        QualityProfile.DRAFT: Promise(min_projection=0.5),
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Coupling:
    """How closely the variants of a family follow its control where they hardly differ from it.

    From the fraction `first_share` of the steps on, each step takes a variant's calm tokens up to
    `strength` of the way to the clean clip that the control is heading for.
    """

    strength: float
    first_share: float = 0.2


def _extrapolation(*, interval: int) -> StepCachePolicy:
    return StepCachePolicy(method=StepCacheMethod.EXTRAPOLATION, interval=interval)


# What makes a family look like one shoot; it costs no forward.
COUPLINGS: Final[Mapping[QualityProfile, Coupling]] = MappingProxyType(
    {
        QualityProfile.CONSISTENT: Coupling(strength=0.1),
        QualityProfile.FAST: Coupling(strength=0.1),
    }
)

# What a run may skip before a calibration has measured it. On the built-in model (30 steps, 8
# renders) computing every third step kept 36 to 44 dB to the exact render, every fourth 35 to 39.
STEP_CACHES: Final[Mapping[QualityProfile, StepCachePolicy | None]] = MappingProxyType(
    {
        QualityProfile.EXACT: None,
        QualityProfile.FAITHFUL: _extrapolation(interval=3),
        QualityProfile.CONSISTENT: _extrapolation(interval=3),
        QualityProfile.FAST: _extrapolation(interval=4),
        QualityProfile.DRAFT: _extrapolation(interval=6),
    }
)

# What a calibration tries, the most sparing first; it takes the first that keeps the promise.
STEP_CACHE_CANDIDATES: Final[Mapping[QualityProfile, tuple[StepCachePolicy, ...]]] = (
    MappingProxyType(
        {
            profile: tuple(_extrapolation(interval=interval) for interval in intervals)
            for profile, intervals in (
                (QualityProfile.EXACT, ()),
                (QualityProfile.FAITHFUL, (4, 3, 2)),
                (QualityProfile.CONSISTENT, (5, 4, 3, 2)),
                (QualityProfile.FAST, (6, 5, 4, 3)),
                (QualityProfile.DRAFT, (6, 5, 4, 3)),
            )
        }
    )
)


def _at_least(value: float | None, bound: float | None) -> bool:
    return value is None or bound is None or value >= bound
