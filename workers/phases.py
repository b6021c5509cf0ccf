"""What is being done with a claimed group: steps, checks, files; and how long it will take.

After the last step of a group its siblings are decoded and some are rendered once more and
compared, which may take longer than the steps. Whoever waits is told so, and the estimate of what
is left counts it in before it begins.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.models import WorkPhase
from app.services.claimed import ClaimedGroup, ClaimedJob
from engine.profiles import GUARD_EVERY
from engine.types import QualityProfile, RenderSettings
from engine.units import clip_units, decode_units


@dataclass(slots=True)
class _Course:
    """How one group went so far; times by the clock of its worker."""

    jobs: Sequence[ClaimedJob] = ()
    handed_out: int = 0
    # When the first steps were done, and how many: before that, the model may have been loaded.
    first: tuple[float, int] | None = None
    steps_s: float | None = None
    steps_done_at: float | None = None


class GroupClock:
    """Follows one group after the other; learns how the time after the steps compares with them."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.phase = WorkPhase.RENDERING
        self._clock = clock
        # Whose weights the engine has in memory.
        self._model_id: str | None = None
        # Seconds after the last step for each second of steps, as it was in the last group.
        self._learned: dict[RenderSettings, float] = {}
        self._course = _Course()

    def begin(self, group: ClaimedGroup) -> None:
        """A group was claimed; its model is loaded unless the group before had the same."""
        is_loaded = group.jobs[0].settings.model_id == self._model_id
        self.phase = WorkPhase.RENDERING if is_loaded else WorkPhase.LOADING
        self._course = _Course(group.jobs)

    def note_steps(self, done: int, planned: int) -> None:
        """So many of the group's steps are done."""
        course, now = self._course, self._clock()
        if course.first is None:
            course.first = (now, done)
            self._model_id = course.jobs[0].settings.model_id
            self.phase = WorkPhase.RENDERING
        first_at, first_done = course.first
        if done > first_done:
            course.steps_s = (now - first_at) * planned / (done - first_done)
        if done >= planned and course.steps_done_at is None:
            course.steps_done_at = now
            self.phase = WorkPhase.FINISHING

    def take_up(self) -> None:
        """The engine works on a job: again, if all steps were done."""
        if self._course.steps_done_at is not None and not self._course.handed_out:
            self.phase = WorkPhase.CHECKING

    def put_down(self) -> None:
        """The engine is done with a job: whatever was to be checked has been."""
        course = self._course
        course.handed_out += 1
        if course.steps_done_at is None:
            return
        self.phase = WorkPhase.FINISHING
        if course.handed_out == len(course.jobs) and course.steps_s:
            rest_s = self._clock() - course.steps_done_at
            self._learned[course.jobs[0].settings] = rest_s / course.steps_s

    @property
    def rest_s(self) -> float | None:
        """Seconds that the group is likely to take after its last step; None: nobody can tell."""
        course = self._course
        if course.steps_s is None:
            return None
        learned = self._learned.get(course.jobs[0].settings)
        share = planned_rest(course.jobs) if learned is None else learned
        return round(share * course.steps_s, 1)


def planned_rest(jobs: Sequence[ClaimedJob]) -> float:
    """Work after the last step for each unit of work of the steps, as the plan has it."""
    settings = jobs[0].settings
    rest = len(jobs) * decode_units(settings)
    if settings.profile is not QualityProfile.EXACT:
        rest += math.ceil(len(jobs) / GUARD_EVERY) * clip_units(settings)
    steps = sum(job.shared_units for job in jobs) - rest
    return rest / steps if steps > 0 else 1.0
