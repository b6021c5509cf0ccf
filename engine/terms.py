"""What a family may share and skip: measured where a calibration fits, else careful; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

from engine.calibration import Calibration, policy_from_dict, policy_to_dict
from engine.forks import default_fork_steps
from engine.profiles import STEP_CACHES
from engine.registry import get_model
from engine.types import QualityProfile, RenderSettings, StepCachePolicy


@dataclass(frozen=True, kw_only=True)
class FamilyTerms:
    """What decides the price of a family besides its requests.

    `fork_steps` are the latest ones by parameter kind; `is_calibrated` says that they were
    measured, so the guard checks fewer renders.
    """

    fork_steps: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    step_cache: StepCachePolicy | None = None
    is_calibrated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        policy = self.step_cache
        return {
            "fork_steps": dict(self.fork_steps),
            "step_cache": None if policy is None else policy_to_dict(policy),
            "is_calibrated": self.is_calibrated,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        policy = data["step_cache"]
        return cls(
            fork_steps=data["fork_steps"],
            step_cache=None if policy is None else policy_from_dict(policy),
            is_calibrated=data["is_calibrated"],
        )


def known_terms(settings: RenderSettings, *, calibration: Calibration | None = None) -> FamilyTerms:
    """The terms of these settings: those of the calibration where it fits them."""
    return FamilyTerms(
        fork_steps=known_fork_steps(settings, calibration=calibration),
        step_cache=known_step_cache(settings, calibration=calibration),
        is_calibrated=calibration is not None
        and calibration.fits(settings)
        and calibration.has_forks,
    )


def known_fork_steps(
    settings: RenderSettings, *, calibration: Calibration | None = None
) -> dict[str, int]:
    """Latest fork step by parameter kind: measured where the calibration fits, else the default."""
    steps = default_fork_steps(settings.profile, settings.num_inference_steps)
    if settings.profile is QualityProfile.EXACT:
        return steps
    if calibration is not None and calibration.fits(settings):
        steps |= calibration.fork_steps
    # A variant keeps at least its last step to itself, so no two drafts look the same.
    return {kind: min(step, settings.last_step - 1) for kind, step in steps.items()}


def known_step_cache(
    settings: RenderSettings, *, calibration: Calibration | None = None
) -> StepCachePolicy | None:
    """What a run may skip: measured where the calibration fits, else the profile's default."""
    policy = STEP_CACHES[settings.profile]
    if calibration is not None and calibration.fits(settings) and calibration.has_forks:
        policy = calibration.step_cache
    can_skip = get_model(settings.model_id).can_skip_steps
    return policy if can_skip and policy is not None and policy.skips_steps else None
