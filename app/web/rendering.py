"""The render of one variant while it goes on: waiting, step by step, ended."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.models import JobState, RenderJob, WorkPhase
from app.models.render_job import FINAL_STATES
from app.services.batches import VariantView
from app.services.in_flight import Steps, find_steps
from app.web.formatting import count


@dataclass(frozen=True, kw_only=True)
class StepsShown:
    """A bar from 0 to `total`, and the same in words."""

    done: int
    total: int
    words: str


def rendering_context(session: Session, view: VariantView) -> dict[str, Any]:
    """What the player shows of a render that has no picture yet; `live_etag` changes with it."""
    job, artifact = view.job, view.artifact
    is_watched = job is not None and job.state not in FINAL_STATES
    # A preview that plays meanwhile is not cut off by news of steps.
    steps = _steps(session, job) if job and not artifact else None
    message = job.error_message if job and not artifact else None
    shown = (job and job.state, artifact and artifact.id, steps, message)
    return {
        "is_watched": is_watched,
        "steps": steps,
        "job_message": message,
        "live_etag": hashlib.sha256(repr(shown).encode()).hexdigest()[:24],
    }


def _steps(session: Session, job: RenderJob) -> StepsShown | None:
    if job.state is not JobState.RUNNING or job.lease_token is None:
        return None
    steps = find_steps(session, job.lease_token)
    return None if steps is None else _shown(steps)


def _shown(steps: Steps) -> StepsShown:
    """Siblings share steps, so their worker counts those of all that it holds."""
    words = f"Step {steps.done:,} of {steps.planned:,}"
    if steps.job_count > 1:
        words += f" of the {count(steps.job_count, 'variant')} rendered together"
    if steps.phase is WorkPhase.LOADING:
        words = "Loading the model"
    elif steps.phase is WorkPhase.CHECKING:
        words = "All steps are done: the quality is being checked"
    elif steps.done >= steps.planned:
        words = "All steps are done: the file is being written"
    return StepsShown(done=steps.done, total=steps.planned, words=words)
