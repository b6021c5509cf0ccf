"""A Celery application like `workers.celery`, with a stand-in for the GPU.

TEST_STEP_S is the time of a step, TEST_POLL_S that between looks for work, TEST_RENDER_LOG the
file that tells of each render.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from app.config import Config
from tests.engines import CrashingEngine
from workers.application import create_celery

_config = Config.from_environment()

app = create_celery(
    replace(_config, workers=replace(_config.workers, poll_s=float(os.environ["TEST_POLL_S"]))),
    engine_factory=lambda: CrashingEngine(
        step_s=float(os.environ["TEST_STEP_S"]), log=Path(os.environ["TEST_RENDER_LOG"])
    ),
)
