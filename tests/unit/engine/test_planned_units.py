"""What a plan prices is what a worker counts: forwards, skipped steps, decodes and checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from engine.calibration import Calibration
from engine.config import EngineConfig
from engine.engine import Engine
from engine.forks import with_fork_steps
from engine.plan import Plan, plan
from engine.profiles import Promise
from engine.registry import weights_fingerprint
from engine.skipping import edge_forwards
from engine.types import (
    GenerationRequest,
    GenerationResult,
    QualityProfile,
    StepCacheMethod,
    StepCachePolicy,
)
from engine.units import clip_units
from tests.unit.engine.conftest import small_settings
from tests.unit.engine.families import variant

STEPS = 12
EXTRAPOLATION = StepCachePolicy(method=StepCacheMethod.EXTRAPOLATION, interval=4)
APPROXIMATE = (QualityProfile.FAITHFUL, QualityProfile.CONSISTENT, QualityProfile.FAST)
BACKDROPS = {1: 1, 3: 3, 8: 4}


@pytest.fixture(autouse=True)
def kept_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random weights keep no promise; here the guard finds nothing to mend."""
    monkeypatch.setattr("engine.guard.PROMISES", dict.fromkeys(QualityProfile, Promise()))


def _family(count: int, **changes: object) -> list[GenerationRequest]:
    """Backdrops, and two places for the family of eight."""
    settings = small_settings(num_inference_steps=STEPS, **changes)
    backdrops = [f"backdrop {number}" for number in range(BACKDROPS[count])]
    places = ("Paris", "Rio")[: count // BACKDROPS[count]]
    return [
        variant(one, place=other, settings=settings) for one, other in product(backdrops, places)
    ]


def _calibration(request: GenerationRequest, model_dir: Path, **changes: object) -> Calibration:
    settings = request.settings
    known = Calibration(
        weights_fingerprint=weights_fingerprint("adloom-tiny", model_dir=model_dir),
        device_kind="cpu",
        width=settings.width,
        height=settings.height,
        num_frames=settings.num_frames,
        solver="Euler",
        num_inference_steps=STEPS,
        guidance_scale=settings.guidance_scale,
        profile=settings.profile,
        step_seconds=0.1,
        text_seconds=0.1,
        decode_seconds=0.1,
        clip_units=clip_units(settings),
        fork_steps={"backdrop": 3, "geography": 7},
        step_cache=EXTRAPOLATION,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def _check(
    planned: Plan,
    requests: Sequence[GenerationRequest],
    model_dir: Path,
    calibration: Calibration | None = None,
) -> None:
    """Render group by group, as workers do, and compare each member's units."""
    config = EngineConfig(model_dir=model_dir, device="cpu", cache_bytes=0)
    engine = Engine(config, calibration=calibration)
    by_id = {request.request_id: request for request in requests}
    for group in planned.groups:
        jobs = [with_fork_steps(by_id[m.request_id], m.fork_steps) for m in group.members]
        results = {outcome.request_id: outcome for outcome in engine.generate(jobs)}
        for member in group.members:
            result = results[member.request_id]
            assert isinstance(result, GenerationResult), result
            assert result.guard_units == pytest.approx(member.guard_units, abs=1e-6)
            units = member.shared_units + member.guard_units
            assert result.work_units == pytest.approx(units, abs=1e-6)


@pytest.mark.parametrize("count", BACKDROPS)
@pytest.mark.parametrize("profile", APPROXIMATE)
def test_a_family_takes_the_units_of_its_plan(
    model_dir: Path, profile: QualityProfile, count: int
) -> None:
    requests = _family(count, profile=profile)
    planned = plan(requests)
    _check(planned, requests, model_dir)
    # Skipped steps are no part of the price.
    assert planned.shared_units < 0.9 * planned.full_units
    assert (planned.guard_units > 0) == (count > 1)


@pytest.mark.parametrize("profile", APPROXIMATE)
def test_a_calibrated_family_in_cut_groups_takes_the_units_of_its_plan(
    model_dir: Path, profile: QualityProfile
) -> None:
    requests = _family(8, profile=profile)
    calibration = _calibration(requests[0], model_dir)
    planned = plan(requests, calibration=calibration, max_group=3)
    assert len(planned.groups) > 2
    assert any(member.fork_steps for group in planned.groups for member in group.members)
    _check(planned, requests, model_dir, calibration)


@pytest.mark.parametrize(
    ("policy", "guidance"),
    [
        (None, 4.0),
        (EXTRAPOLATION, 1.0),
        (StepCachePolicy(hold_guidance_from=0.5), 4.0),
        (replace(EXTRAPOLATION, hold_guidance_from=0.5), 4.0),
    ],
    ids=["nothing skipped", "no guidance", "held guidance", "both"],
)
def test_other_step_caches_take_the_units_of_their_plan(
    model_dir: Path, policy: StepCachePolicy | None, guidance: float
) -> None:
    requests = _family(3, profile=QualityProfile.CONSISTENT, guidance_scale=guidance)
    calibration = _calibration(requests[0], model_dir, step_cache=policy)
    _check(plan(requests, calibration=calibration), requests, model_dir, calibration)


def test_a_cache_that_skips_by_what_it_sees_is_priced_as_if_it_never_did() -> None:
    settings = small_settings(num_inference_steps=STEPS)
    policy = StepCachePolicy(method=StepCacheMethod.FIRST_BLOCK)
    assert edge_forwards(settings, policy, 2, 8) == 2 * 6
