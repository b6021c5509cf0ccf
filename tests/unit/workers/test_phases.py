"""The phases of a group, and what its worker expects of the time after the last step."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from app.models import JobPurpose, WorkPhase
from app.services.claimed import ClaimedGroup, ClaimedJob
from engine.types import QualityProfile, RenderSettings
from engine.units import clip_units, decode_units
from tests.factories import SETTINGS as SETTINGS_AS_JSON
from workers.phases import GroupClock, planned_rest

SETTINGS = RenderSettings.from_dict(SETTINGS_AS_JSON)
STEPS = SETTINGS.num_inference_steps


class Clock:
    """Stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def make_group(count: int, profile: QualityProfile = QualityProfile.EXACT) -> ClaimedGroup:
    settings = replace(SETTINGS, profile=profile)
    job = ClaimedJob(
        job_id=uuid4(),
        variant_id=uuid4(),
        batch_id=uuid4(),
        workspace_id=uuid4(),
        purpose=JobPurpose.FINAL,
        number=1,
        variant_key="",
        prompt="a sneaker",
        negative_prompt="",
        slots=(),
        seed=1,
        settings=settings,
        work_units=clip_units(settings),
        shared_units=clip_units(settings),
        fork_steps={},
    )
    jobs = tuple(replace(job, job_id=uuid4()) for _ in range(count))
    return ClaimedGroup(token=1, group_key="group", affinity_key="family", jobs=jobs)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_before_the_first_step_of_another_model_it_is_loaded(clock: Clock) -> None:
    group_clock, group = GroupClock(clock=clock), make_group(2)
    group_clock.begin(group)
    assert group_clock.phase is WorkPhase.LOADING
    group_clock.take_up()
    assert group_clock.phase is WorkPhase.LOADING
    group_clock.note_steps(2, 2 * STEPS)
    assert group_clock.phase is WorkPhase.RENDERING
    group_clock.begin(make_group(2))
    assert group_clock.phase is WorkPhase.RENDERING, "it is in memory now"
    other = replace(group.jobs[0], settings=replace(SETTINGS, model_id="another"))
    group_clock.begin(replace(group, jobs=(other,)))
    assert group_clock.phase is WorkPhase.LOADING


def step_through(group_clock: GroupClock, clock: Clock, group: ClaimedGroup) -> None:
    """All steps of a group that is batched, a second each."""
    group_clock.begin(group)
    count = len(group.jobs)
    for step in range(1, STEPS + 1):
        clock.now += 1.0
        group_clock.take_up()
        group_clock.note_steps(step * count, STEPS * count)


def test_a_group_is_rendered_then_checked_then_finished(clock: Clock) -> None:
    group_clock, group = GroupClock(clock=clock), make_group(2)
    group_clock.begin(group)
    assert group_clock.phase is WorkPhase.LOADING
    step_through(group_clock, clock, group)
    assert group_clock.phase is WorkPhase.FINISHING
    group_clock.take_up()
    assert group_clock.phase is WorkPhase.CHECKING
    group_clock.put_down()
    assert group_clock.phase is WorkPhase.FINISHING
    group_clock.begin(group)
    assert group_clock.phase is WorkPhase.RENDERING


def test_the_time_after_the_steps_is_expected_as_it_was_the_last_time(clock: Clock) -> None:
    group_clock, group = GroupClock(clock=clock), make_group(2)
    step_through(group_clock, clock, group)
    planned = planned_rest(group.jobs) * STEPS
    assert group_clock.rest_s == pytest.approx(planned, abs=0.1)
    clock.now += 3 * STEPS
    group_clock.put_down()
    group_clock.put_down()
    step_through(group_clock, clock, group)
    assert group_clock.rest_s == pytest.approx(3 * STEPS, abs=0.1)
    step_through(group_clock, clock, make_group(2, QualityProfile.FAST))
    assert group_clock.rest_s != pytest.approx(3 * STEPS, abs=0.1), "other settings, other times"


def test_nobody_can_tell_before_a_step_was_timed(clock: Clock) -> None:
    group_clock, group = GroupClock(clock=clock), make_group(1)
    group_clock.begin(group)
    clock.now += 30.0
    group_clock.note_steps(1, STEPS)
    assert group_clock.rest_s is None, "it may have been the loading of the model that took so long"
    clock.now += 1.0
    group_clock.note_steps(2, STEPS)
    assert group_clock.rest_s == pytest.approx(planned_rest(group.jobs) * STEPS, abs=0.1)


def test_the_plan_counts_decoding_and_checks_as_what_follows_the_steps() -> None:
    exact, checked = make_group(4), make_group(4, QualityProfile.FAST)
    steps = clip_units(SETTINGS) - decode_units(SETTINGS)
    assert planned_rest(exact.jobs) == pytest.approx(decode_units(SETTINGS) / steps)
    assert planned_rest(checked.jobs) > planned_rest(exact.jobs)
