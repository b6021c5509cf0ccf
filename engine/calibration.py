"""What was measured for one model and one set of settings, and the file it is kept in; no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.errors import InvalidRequest
from engine.types import (
    QualityProfile,
    RenderSettings,
    StemConditioning,
    StepCacheMethod,
    StepCachePolicy,
)

CALIBRATION_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was measured for one model on one kind of device with one set of settings.

    `fork_steps` maps a parameter kind to the latest step at which variants may fork and still
    keep the profile's promise, `stems` to what conditions the steps before it best; `step_cache`
    is what runs may skip besides (None where `fork_steps` is empty says nothing). `clip_units`
    are the work units of one exact render at these settings, so seconds of other sizes follow
    from their units; `probe_units` are what the measurement took.
    It rests on `num_variants` of so many prompts and seeds (0: not recorded), and `closeness` is
    how near those came: `psnr_p50` and `_p5`, `ssim_p50` and `_p5`, `projection_min`, `drift_max`.
    """

    weights_fingerprint: str
    device_kind: str
    width: int
    height: int
    num_frames: int
    solver: str
    num_inference_steps: int
    guidance_scale: float
    profile: QualityProfile
    step_seconds: float
    text_seconds: float
    decode_seconds: float
    clip_units: float
    fork_steps: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    stems: Mapping[str, StemConditioning] = field(default_factory=lambda: MappingProxyType({}))
    step_cache: StepCachePolicy | None = None
    probe_units: float = 0.0
    num_prompts: int = 0
    num_seeds: int = 0
    num_variants: int = 0
    closeness: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def clip_seconds(self) -> float:
        """Seconds of one exact render."""
        return (
            self.text_seconds + self.num_inference_steps * self.step_seconds + self.decode_seconds
        )

    @property
    def has_forks(self) -> bool:
        """Whether fork steps were measured, and not times alone."""
        return bool(self.fork_steps)

    def fits(self, settings: RenderSettings, *, weights_fingerprint: str | None = None) -> bool:
        """Whether the fork steps were measured for these settings, and for these weights.

        They hold on any device: rounding moves a render by far less than a promise allows. The
        fingerprint covers the checkpoint's noise scheduler, and so the solver.
        """
        return (
            self.profile is settings.profile
            and self.num_inference_steps == settings.num_inference_steps
            and self.guidance_scale == settings.guidance_scale
            and (self.width, self.height) == (settings.width, settings.height)
            and self.num_frames == settings.num_frames
            and weights_fingerprint in (None, self.weights_fingerprint)
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        data = {item.name: getattr(self, item.name) for item in fields(self)}
        policy = self.step_cache
        return data | {
            "profile": str(self.profile),
            "fork_steps": dict(self.fork_steps),
            "stems": {kind: str(stem) for kind, stem in self.stems.items()},
            "step_cache": None if policy is None else policy_to_dict(policy),
            "closeness": dict(self.closeness),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        """Read what `to_dict` wrote; InvalidRequest for anything else."""
        try:
            policy = data.get("step_cache")
            return cls(
                **{
                    **data,
                    "profile": QualityProfile(data["profile"]),
                    "fork_steps": MappingProxyType(dict(data.get("fork_steps", {}))),
                    "stems": MappingProxyType(
                        {k: StemConditioning(v) for k, v in data.get("stems", {}).items()}
                    ),
                    "step_cache": None if policy is None else policy_from_dict(policy),
                    "closeness": MappingProxyType(dict(data.get("closeness", {}))),
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequest("calibration", f"This is no calibration: {error}.") from None


def policy_to_dict(policy: StepCachePolicy) -> dict[str, Any]:
    """A step cache policy as plain values for JSON."""
    data = {item.name: getattr(policy, item.name) for item in fields(policy)}
    method = policy.method
    return data | {
        "method": None if method is None else str(method),
        "mag_ratios": list(policy.mag_ratios),
    }


def policy_from_dict(data: Mapping[str, Any]) -> StepCachePolicy:
    """Read what `policy_to_dict` wrote."""
    method = data["method"]
    policy = StepCachePolicy(**{**data, "method": None, "mag_ratios": tuple(data["mag_ratios"])})
    return policy if method is None else replace(policy, method=StepCacheMethod(method))


def calibrations_path(checkpoint: Path) -> Path:
    """The file of a checkpoint's calibrations: beside its folder, whose files make its hash."""
    return checkpoint.with_name(f"{checkpoint.name}.calibrations.json")


def read_calibrations(checkpoint: Path) -> tuple[Calibration, ...]:
    """What was kept for a checkpoint; nothing where there is no file yet."""
    path = calibrations_path(checkpoint)
    if not path.is_file():
        return ()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document["version"]
        if version == CALIBRATION_VERSION:
            return tuple(Calibration.from_dict(each) for each in document["calibrations"])
    except (ValueError, KeyError, TypeError, InvalidRequest) as error:
        raise InvalidRequest(
            "calibration", f"{path} cannot be read ({error}). Delete it and calibrate anew."
        ) from None
    raise InvalidRequest(
        "calibration",
        f"{path} is of version {version}, not {CALIBRATION_VERSION}. Delete it, calibrate anew.",
    )


def find_calibration(
    checkpoint: Path, settings: RenderSettings, *, weights_fingerprint: str
) -> Calibration | None:
    """The calibration kept for these settings and weights, the latest one first."""
    return next(
        (
            each
            for each in reversed(read_calibrations(checkpoint))
            if each.fits(settings, weights_fingerprint=weights_fingerprint)
        ),
        None,
    )


def keep_calibration(checkpoint: Path, calibration: Calibration) -> Path:
    """Write a calibration into the checkpoint's file, which is replaced as a whole.

    Those of other weights are dropped: nothing will ask for them again.
    """
    kept = [
        each
        for each in read_calibrations(checkpoint)
        if each.weights_fingerprint == calibration.weights_fingerprint
        and _place(each) != _place(calibration)
    ]
    document = {
        "version": CALIBRATION_VERSION,
        "calibrations": [each.to_dict() for each in (*kept, calibration)],
    }
    path = calibrations_path(checkpoint)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return path


def _place(calibration: Calibration) -> tuple[object, ...]:
    """What two calibrations of the same weights must share to replace each other."""
    return (
        calibration.device_kind,
        calibration.width,
        calibration.height,
        calibration.num_frames,
        calibration.num_inference_steps,
        calibration.guidance_scale,
        calibration.profile,
    )
