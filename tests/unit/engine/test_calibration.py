"""Calibrations as values: what they hold for, and the file beside a checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.calibration import (
    Calibration,
    calibrations_path,
    find_calibration,
    keep_calibration,
    read_calibrations,
)
from engine.errors import InvalidRequest
from engine.types import QualityProfile, StemConditioning, StepCacheMethod, StepCachePolicy
from tests.unit.engine.conftest import small_settings

SETTINGS = small_settings(profile=QualityProfile.CONSISTENT)
KNOWN = Calibration(
    weights_fingerprint="f",
    device_kind="cpu",
    width=SETTINGS.width,
    height=SETTINGS.height,
    num_frames=SETTINGS.num_frames,
    solver="Euler",
    num_inference_steps=SETTINGS.num_inference_steps,
    guidance_scale=SETTINGS.guidance_scale,
    profile=SETTINGS.profile,
    step_seconds=0.1,
    text_seconds=0.1,
    decode_seconds=0.1,
    clip_units=4.5,
    fork_steps={"backdrop": 1},
    stems={"backdrop": StemConditioning.MEAN_EMBEDDING},
    step_cache=StepCachePolicy(method=StepCacheMethod.FIRST_BLOCK, threshold=0.1),
    probe_units=40.0,
    num_prompts=2,
    num_seeds=3,
    num_variants=18,
    closeness={"psnr_p50": 36.5},
)


@pytest.mark.parametrize(
    "policy",
    [
        None,
        KNOWN.step_cache,
        StepCachePolicy(hold_guidance_from=0.5),
        StepCachePolicy(method=StepCacheMethod.MAG, mag_ratios=(1.0, 0.9)),
    ],
    ids=["none", "first block", "guidance", "mag"],
)
def test_a_calibration_survives_json(policy: StepCachePolicy | None) -> None:
    calibration = replace(KNOWN, step_cache=policy)
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration


def test_a_calibration_of_times_alone_is_read() -> None:
    data = KNOWN.to_dict()
    later = ("num_prompts", "num_seeds", "num_variants", "closeness")
    for name in ("fork_steps", "stems", "step_cache", "probe_units", *later):
        del data[name]
    calibration = Calibration.from_dict(data)
    assert not calibration.has_forks
    assert (calibration.num_prompts, calibration.num_variants, calibration.closeness) == (0, 0, {})
    assert calibration.step_seconds == KNOWN.step_seconds


@pytest.mark.parametrize("change", [{"profile": "best"}, {"colour": 1}, {"stems": {"a": "b"}}])
def test_what_is_no_calibration_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="no calibration"):
        Calibration.from_dict(KNOWN.to_dict() | change)


@pytest.mark.parametrize(
    "change",
    [
        {"num_inference_steps": 3},
        {"guidance_scale": 3.0},
        {"width": 160},
        {"num_frames": 9},
        {"profile": QualityProfile.FAST},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_settings_are_not_calibrated(tmp_path: Path, change: dict[str, object]) -> None:
    keep_calibration(tmp_path / "tiny", KNOWN)
    found = find_calibration(tmp_path / "tiny", SETTINGS, weights_fingerprint="f")
    assert found == KNOWN
    other = replace(SETTINGS, **change)  # type: ignore[arg-type]
    assert find_calibration(tmp_path / "tiny", other, weights_fingerprint="f") is None


def test_other_weights_end_a_calibration(tmp_path: Path) -> None:
    checkpoint = tmp_path / "tiny"
    keep_calibration(checkpoint, KNOWN)
    assert find_calibration(checkpoint, SETTINGS, weights_fingerprint="g") is None
    keep_calibration(checkpoint, replace(KNOWN, weights_fingerprint="g"))
    assert [each.weights_fingerprint for each in read_calibrations(checkpoint)] == ["g"]


def test_a_calibration_replaces_the_one_in_its_place(tmp_path: Path) -> None:
    checkpoint = tmp_path / "tiny"
    fast = replace(KNOWN, profile=QualityProfile.FAST)
    again = replace(KNOWN, fork_steps={"backdrop": 0})
    for each in (KNOWN, fast, again):
        path = keep_calibration(checkpoint, each)
    assert read_calibrations(checkpoint) == (fast, again)
    # The checkpoint's own folder, whose files make its fingerprint, stays as it is.
    assert (path, list(tmp_path.iterdir())) == (calibrations_path(checkpoint), [path])


@pytest.mark.parametrize(
    ("text", "message"), [("{", "cannot be read"), ('{"version": 9}', "version 9")]
)
def test_a_damaged_file_is_said(tmp_path: Path, text: str, message: str) -> None:
    calibrations_path(tmp_path / "tiny").write_text(text)
    with pytest.raises(InvalidRequest, match=message):
        read_calibrations(tmp_path / "tiny")
