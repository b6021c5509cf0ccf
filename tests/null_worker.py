"""A Celery application like `workers.celery`, with a stand-in for the GPU.

TEST_STEP_S is the time of a step, TEST_POLL_S that between looks for work, TEST_LOAD_S that of
making the engine, TEST_RENDER_LOG the file that tells of each render. With TEST_ENDLESS_STEP, a
step computes with torch and never ends. The interpreter says so when it begins to tidy up.
"""

from __future__ import annotations

import atexit
import os
import time
from dataclasses import replace
from pathlib import Path

from app.config import Config
from app.db import Database
from engine.types import GenerationRequest
from tests.engines import CrashingEngine
from workers.application import create_celery

_config = Config.from_environment()
atexit.register(print, "the interpreter tidies up", flush=True)


def make_engine(_: Database) -> CrashingEngine:
    time.sleep(float(os.environ["TEST_LOAD_S"]))
    engine = CrashingEngine(
        step_s=float(os.environ["TEST_STEP_S"]), log=Path(os.environ["TEST_RENDER_LOG"])
    )
    if os.environ.get("TEST_ENDLESS_STEP"):
        engine.on_step = compute_for_ever
    return engine


def compute_for_ever(request: GenerationRequest) -> None:
    # Local import: few of these workers need torch, whose loading takes seconds.
    import torch

    value = torch.ones(1000, 1000) @ torch.ones(1000, 1000)
    print("computing", flush=True)
    while True:
        value = (value @ value).clamp(-1, 1)


app = create_celery(
    replace(_config, workers=replace(_config.workers, poll_s=float(os.environ["TEST_POLL_S"]))),
    engine_factory=make_engine,
)
