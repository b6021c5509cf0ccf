"""Times of renders become the pace that later quotes are made with."""

from __future__ import annotations

import numpy as np
import pytest

from app.db import Database
from app.services import calibrations
from engine.types import GenerationResult, RenderSettings, StageSeconds
from tests.factories import SETTINGS
from workers.timing import Timings

RENDER = RenderSettings.from_dict(SETTINGS)
ORIGIN = {"weights_fingerprint": "a" * 64, "device": "cpu", "solver": "UniPC"}


def result(*, denoise: float, forwards: float, **facts: str) -> GenerationResult:
    return GenerationResult(
        request_id="1",
        frames=np.zeros((1, 2, 2, 3), dtype=np.uint8),
        fps=12,
        seconds=StageSeconds(text=0.5, denoise=denoise, decode=1.0),
        forwards_computed=forwards,
        provenance=ORIGIN | facts,
    )


def test_a_step_takes_what_the_median_render_took_for_those_it_computed(
    database: Database,
) -> None:
    timings = Timings(database)
    # Of 4 steps with 2 forwards each: all of them, half of them, and a slow first one.
    for denoise, forwards in ((40.0, 8.0), (4.0, 8.0), (2.0, 4.0)):
        timings.note(RENDER, result(denoise=denoise, forwards=forwards))
    timings.save()
    with database.system_scope() as session:
        pace = calibrations.load(session, ORIGIN["weights_fingerprint"]).find_pace(RENDER)
    assert pace is not None
    assert pace.step_seconds == pytest.approx(1.0)
    assert (pace.text_seconds, pace.decode_seconds) == (0.5, 1.0)


def test_copies_and_engines_that_do_not_name_themselves_measure_nothing(
    database: Database,
) -> None:
    timings = Timings(database)
    timings.note(RENDER, result(denoise=0.0, forwards=0.0))
    timings.note(RENDER, result(denoise=4.0, forwards=8.0, device=""))
    timings.save()
    with database.system_scope() as session:
        assert calibrations.load(session, ORIGIN["weights_fingerprint"]).calibrations == []


def test_times_are_saved_now_and_then_alone(database: Database) -> None:
    timings = Timings(database)

    def pace() -> float:
        with database.system_scope() as session:
            found = calibrations.load(session, ORIGIN["weights_fingerprint"]).find_pace(RENDER)
        assert found is not None
        return found.step_seconds

    timings.note(RENDER, result(denoise=4.0, forwards=8.0))
    timings.save()
    for _ in range(3):
        timings.note(RENDER, result(denoise=8.0, forwards=8.0))
    timings.save()
    assert pace() == pytest.approx(1.0), "the last saving was a moment ago"
