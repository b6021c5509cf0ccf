"""Why nothing of the demo's batch moves yet: the workers start, or others' work goes first."""

from __future__ import annotations

import time

from app.cli.demo_batch import DemoBatch
from app.db import Database
from app.models import Batch, BatchState, JobState
from app.services import batches
from app.services.batches import Progress
from app.services.progress import MOVING_STATES

# Other batches are looked at this often, and so many of the newest.
LOOK_EVERY_S = 2.0
MAX_LOOKED_AT = 20


class Waiting:
    """Says in a few words what the batch waits for; asks the database now and then only."""

    def __init__(self, database: Database, demo: DemoBatch) -> None:
        self._database = database
        self._demo = demo
        self._reason = ""
        self._look_at = 0.0

    def reason(self, progress: Progress) -> str:
        """Empty as soon as a render runs."""
        if progress.counts.get(JobState.RUNNING) or progress.state not in MOVING_STATES:
            return ""
        if progress.state is BatchState.EXPANDING:
            return "writing the variants"
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_EVERY_S
            self._reason = self._look()
        return self._reason

    def _look(self) -> str:
        with self._database.workspace_scope(self._demo.actor) as session:
            for batch in batches.list_batches(session, self._demo.actor, limit=MAX_LOOKED_AT):
                if batch.id == self._demo.batch.id or batch.state not in MOVING_STATES:
                    continue
                progress = batches.get_progress(session, self._demo.actor, batch.id)
                if progress.counts.get(JobState.RUNNING):
                    return _behind(batch, progress)
        return "waiting for a worker"


def time_left(progress: Progress) -> str:
    """What is being done, unless it is denoising, and the estimate of what is left, in words."""
    words = [progress.phase_words] if progress.phase_words else []
    if progress.eta_s is not None and round(progress.eta_s) >= 1:
        minutes, seconds = divmod(round(progress.eta_s), 60)
        words.append(f"about {minutes}:{seconds:02d} left")
    elif progress.eta_s is not None and not words:
        words.append("finishing")
    return ", ".join(words)


def _behind(batch: Batch, progress: Progress) -> str:
    left = f"{progress.total - progress.done} to render"
    eta = time_left(progress)
    return f"waiting for “{batch.name}” ({left}{f', {eta}' if eta else ''})"
