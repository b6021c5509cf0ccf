"""The state machine of render jobs, and who may write their state."""

from __future__ import annotations

import re

import pytest

from app.models import CLAIMABLE_STATES, FINAL_STATES, LIVE_STATES, TRANSITIONS, JobState
from app.paths import ROOT
from app.services.jobs import _sources

# An assignment to the state of a job, in the forms in which SQLAlchemy and SQL write it.
WRITES_STATE = re.compile(
    r"update\(RenderJob\)(?:(?!update\().)*?\.values\([^=]*?\bstate\s*="
    r"|job\.state\s*=[^=]"
    r"|UPDATE\s+render_jobs\s+SET[^;\"]*\bstate\s*="
    r"|INSERT\s+INTO\s+render_jobs"
    r"|insert\(RenderJob\)"
    r"|\bRenderJob\("
    r"|[\"']render_jobs[\"']\s*,",
    re.IGNORECASE | re.DOTALL,
)


@pytest.mark.parametrize(
    "line",
    [
        "update(RenderJob)\n.where(RenderJob.id.in_(ids))\n.values(state=JobState.FAILED)",
        "job.state = JobState.FAILED",
        "UPDATE render_jobs SET error_code = 'x', state = 'failed'",
        "session.add(RenderJob(state=JobState.QUEUED))",
        'copy_rows(session, "render_jobs", columns, rows)',
    ],
)
def test_a_write_of_the_state_is_recognised(line: str) -> None:
    assert WRITES_STATE.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "update(RenderJob).where(RenderJob.state == 'running').values(lease_expires_at=later)",
        "update(RenderJob).values(scheduled_at=now)\nupdate(Batch).values(state=BatchState.PAUSED)",
        "if job.state == JobState.FAILED:",
    ],
)
def test_anything_else_is_not_taken_for_one(line: str) -> None:
    assert not WRITES_STATE.search(line)


def test_only_one_module_writes_the_state_of_a_job() -> None:
    writers = {
        path.relative_to(ROOT).as_posix()
        for package in ("app", "workers")
        for path in (ROOT / package).rglob("*.py")
        if WRITES_STATE.search(path.read_text(encoding="utf-8"))
    }
    # The model itself declares the class.
    assert writers - {"app/models/render_job.py"} == {"app/services/jobs.py"}


def test_every_state_has_its_transitions() -> None:
    assert set(TRANSITIONS) == set(JobState)


def test_final_states_are_left_by_a_person_alone() -> None:
    for state in FINAL_STATES:
        assert TRANSITIONS[state] <= {JobState.QUEUED}
    assert not TRANSITIONS[JobState.SUCCEEDED]


def test_every_live_state_reaches_an_end() -> None:
    for state in LIVE_STATES:
        reached, queue = set[JobState](), [state]
        while queue:
            current = queue.pop()
            reached.add(current)
            queue += TRANSITIONS[current] - reached
        assert JobState.SUCCEEDED in reached


def test_only_claimable_jobs_start() -> None:
    assert _sources(JobState.RUNNING) == CLAIMABLE_STATES


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.SCHEDULED])
def test_a_job_is_never_scheduled_again_once_it_may_run(state: JobState) -> None:
    is_allowed = JobState.SCHEDULED in TRANSITIONS[state]
    assert is_allowed is (state is JobState.QUEUED)
