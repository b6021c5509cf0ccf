"""How long renders took: the medians of the latest ones, saved for quotes now and then."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator

from app.db import Database
from app.services import calibrations
from engine.plan import Calibration, calibrate
from engine.registry import forwards_per_step
from engine.types import GenerationResult, RenderSettings, StageSeconds

logger = logging.getLogger(__name__)

SAMPLES = 64
SAVE_EVERY_S = 10.0

# What the engine says of itself: weights, device, solver.
Origin = tuple[str, str, str]


class Timings:
    """Stage times of one worker's renders, by their settings."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seconds: dict[tuple[RenderSettings, Origin], deque[StageSeconds]] = {}
        self._is_new: set[tuple[RenderSettings, Origin]] = set()
        self._save_at = 0.0

    def note(self, settings: RenderSettings, result: GenerationResult) -> None:
        """Take in a render; one that computed no step says nothing about steps."""
        facts = result.provenance
        origin = tuple(facts.get(name) for name in ("weights_fingerprint", "device", "solver"))
        if not result.forwards_computed or not all(origin):
            return
        # As if nothing had been shared: the seconds of a step, for all the steps.
        settings = settings.finished
        forwards = settings.num_inference_steps * forwards_per_step(settings)
        whole = StageSeconds(
            text=result.seconds.text,
            denoise=result.seconds.denoise * forwards / result.forwards_computed,
            decode=result.seconds.decode,
        )
        key = (settings, (str(origin[0]), str(origin[1]), str(origin[2])))
        self._seconds.setdefault(key, deque(maxlen=SAMPLES)).append(whole)
        self._is_new.add(key)

    def save(self) -> None:
        """Save what is new, if it is time; a failure costs nothing but this knowledge."""
        if not self._is_new or time.monotonic() < self._save_at:
            return
        self._save_at = time.monotonic() + SAVE_EVERY_S
        try:
            with self._database.system_scope() as session:
                for calibration, count in self._medians():
                    calibrations.save(session, calibration, sample_count=count)
        except Exception as error:
            logger.warning("render times were not saved: %s", str(error).partition("\n")[0])
        else:
            self._is_new.clear()

    def _medians(self) -> Iterator[tuple[Calibration, int]]:
        # In one order, so that two workers that save the same never wait for each other.
        for key in sorted(self._is_new, key=repr):
            settings, (weights, device, solver) = key
            seconds = self._seconds[key]
            yield (
                calibrate(
                    settings,
                    list(seconds),
                    weights_fingerprint=weights,
                    device_kind=device,
                    solver=solver,
                ),
                len(seconds),
            )
