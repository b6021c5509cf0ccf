"""What workers measured is kept by its key, and prices and plans later batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from sqlalchemy import func, select

from app.access import Actor
from app.db import Database
from app.models import CalibrationRecord, ExpansionMode
from app.services import batches, calibrations
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from engine.calibration import Calibration, calibrations_path, keep_calibration
from engine.registry import weights_fingerprint
from engine.types import QualityProfile, RenderSettings, StepCacheMethod, StepCachePolicy
from engine.units import clip_units
from tests.factories import SETTINGS, VALUES, make_campaign
from workers.engines import calibration_finder

DRAFT = RenderSettings.from_dict(SETTINGS | {"profile": "draft", "num_inference_steps": 10})
WEIGHTS = "a" * 64


def measured(**changes: Any) -> Calibration:
    """Two seconds per step, with a backdrop that may fork late."""
    calibration = Calibration(
        weights_fingerprint=WEIGHTS,
        device_kind="cpu x86_64, 2 threads",
        width=DRAFT.width,
        height=DRAFT.height,
        num_frames=DRAFT.num_frames,
        solver="UniPCMultistepScheduler",
        num_inference_steps=DRAFT.num_inference_steps,
        guidance_scale=DRAFT.guidance_scale,
        profile=DRAFT.profile,
        step_seconds=2.0,
        text_seconds=0.5,
        decode_seconds=1.0,
        clip_units=clip_units(DRAFT),
        fork_steps=MappingProxyType({"backdrop": 7}),
    )
    return replace(calibration, **changes)


def save(database: Database, calibration: Calibration, **options: Any) -> None:
    with database.system_scope() as session:
        calibrations.save(session, calibration, **options)


def find(database: Database, settings: RenderSettings = DRAFT) -> Calibration | None:
    with database.system_scope() as session:
        return calibrations.load(session, WEIGHTS).find(settings)


def test_a_calibration_is_found_by_its_settings_and_weights_alone(database: Database) -> None:
    save(database, measured())
    assert find(database) == measured()
    assert find(database, replace(DRAFT, num_inference_steps=9)) is None
    assert find(database, replace(DRAFT, profile=QualityProfile.FAST)) is None
    assert find(database, replace(DRAFT, guidance_scale=2.0)) is None
    with database.system_scope() as session:
        assert calibrations.load(session, "b" * 64).find(DRAFT) is None


def test_times_alone_leave_the_fork_steps_as_they_are(database: Database) -> None:
    save(database, measured())
    save(database, measured(fork_steps={}, step_seconds=1.0), sample_count=3)
    found = find(database)
    assert found is not None
    assert (dict(found.fork_steps), found.step_seconds) == ({"backdrop": 7}, 1.0)
    with database.system_scope() as session:
        assert session.scalar(select(func.count()).select_from(CalibrationRecord)) == 1


def test_settled_times_are_not_replaced_by_those_of_a_single_render(database: Database) -> None:
    save(database, measured(fork_steps={}, step_seconds=1.0), sample_count=20)
    save(database, measured(step_seconds=9.0))
    found = find(database)
    assert found is not None
    assert (dict(found.fork_steps), found.step_seconds) == ({"backdrop": 7}, 1.0)
    save(database, measured(step_seconds=3.0), sample_count=calibrations.SETTLED_SAMPLES)
    assert find(database) == measured(step_seconds=3.0)


def test_times_of_another_profile_tell_the_pace_but_not_where_to_fork(database: Database) -> None:
    save(database, measured())
    with database.system_scope() as session:
        known = calibrations.load(session, WEIGHTS)
    exact = replace(DRAFT, profile=QualityProfile.EXACT)
    assert known.find(exact) is None
    assert known.find_pace(exact) == measured()


def test_what_was_shipped_with_the_weights_holds_until_something_is_measured(
    database: Database, weights: Path
) -> None:
    own = weights_fingerprint(DRAFT.model_id)
    find_now = calibration_finder(database)
    keep_calibration(weights, measured(weights_fingerprint="of other weights"))
    assert find_now(DRAFT) is None
    shipped = measured(weights_fingerprint=own, fork_steps={"backdrop": 5})
    keep_calibration(weights, shipped)
    assert find_now(DRAFT) == shipped
    with database.system_scope() as session:
        # Its seconds are another machine's.
        assert calibrations.load_with_shipped(session, DRAFT.model_id).find_pace(DRAFT) is None
    save(database, measured(weights_fingerprint=own))
    assert find_now(DRAFT) == measured(weights_fingerprint=own)


def test_a_calibration_file_that_cannot_be_read_costs_no_render(
    database: Database, weights: Path
) -> None:
    calibrations_path(weights).write_text("{")
    assert calibration_finder(database)(DRAFT) is None


@pytest.mark.usefixtures("weights")
def test_a_quote_takes_fork_steps_and_time_from_what_was_measured(
    database: Database, actor: Actor
) -> None:
    with database.system_scope() as session:
        campaign = make_campaign(session, workspace_id=actor.workspace_id)
    parameters = tuple(
        SpecParameter(name=name, kind=name, values=values)  # type: ignore[arg-type]
        for name, values in VALUES.items()
    )
    spec = BatchSpec(
        parameters=parameters,
        mode=ExpansionMode.CARTESIAN,
        settings=SpecSettings(**DRAFT.to_dict()),
    )

    def quote() -> Any:
        with database.workspace_scope(actor) as session:
            batch = batches.create_batch(session, actor, campaign_id=campaign.id, spec=spec)
            return batches.get_progress(session, actor, batch.id).quote

    before = quote()
    assert before.estimated_s is None
    skipping = StepCachePolicy(method=StepCacheMethod.EXTRAPOLATION, interval=6)
    own = weights_fingerprint(DRAFT.model_id)
    save(database, measured(weights_fingerprint=own, step_cache=skipping))
    after = quote()
    assert after.shared_units < before.shared_units
    (steps,) = [each["fork_steps"] for each in after.details["plan"]["terms"]]
    assert steps["backdrop"] == 7
    # 21.5 seconds for a whole clip; checks take time beyond the exact price that caps a charge.
    share = after.shared_units / clip_units(DRAFT)
    assert 21.5 * share <= after.estimated_s < 21.5 * 12
    exact = after.details["profiles"]["exact"]
    assert exact["estimated_s"] == pytest.approx(21.5 * 12)
