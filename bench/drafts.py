"""`python -m bench.drafts`: a draft and its finished render against the render from the noise."""

from __future__ import annotations

import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from engine.distances import psnr_db
from engine.engine import Engine
from engine.registry import default_draft_step, default_settings
from engine.suspending import StateFile, Suspension
from engine.types import GenerationRequest, GenerationResult

MODEL_ID = "adloom-tiny"
PROMPTS = ("a red sneaker on a beach", "a blue backpack in the snow", "a green mug in a studio")


def main() -> None:
    """Render each prompt from the noise, and as a draft that is finished; print a table."""
    engine = Engine()
    settings = default_settings(MODEL_ID)
    requests = [
        GenerationRequest(request_id=str(place), prompt=prompt, seed=3, settings=settings)
        for place, prompt in enumerate(PROMPTS)
    ]
    _render(engine, requests[0])  # the first render loads and warms up
    seconds: dict[str, list[float]] = {"exact from the noise": [], "draft": [], "finish": []}
    psnr: list[float] = []
    is_equal = True
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "draft.state"
        for request in requests:
            whole = _timed(seconds["exact from the noise"], partial(_render, engine, request))
            draft = _timed(seconds["draft"], partial(_draft, engine, request, file))
            done = _timed(seconds["finish"], partial(_finish, engine, request, file))
            is_equal &= np.array_equal(done.frames, whole.frames)
            psnr.append(psnr_db(draft.frames, whole.frames))
        size_bytes = file.stat().st_size
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} thread(s), ")
    print(
        f"{settings.num_inference_steps} steps, {len(requests)} prompts, state {size_bytes} bytes"
    )
    print("\n| what | CPU seconds, median |\n|---|---|")
    for name, values in seconds.items():
        print(f"| {name} | {statistics.median(values):.2f} |")
    print(f"\nfinished render equal to that from the noise: {'yes' if is_equal else 'NO'}")
    print(f"PSNR of the drafts to it: {', '.join(f'{value:.1f}' for value in psnr)} dB")


def _timed(seconds: list[float], render: Callable[[], GenerationResult]) -> GenerationResult:
    start = time.process_time()
    result = render()
    seconds.append(time.process_time() - start)
    return result


def _draft(engine: Engine, request: GenerationRequest, file: Path) -> GenerationResult:
    step = default_draft_step(request.settings)
    draft = replace(request, settings=replace(request.settings, draft_step=step))
    result = _render(engine, draft)
    if result.state is None:
        raise SystemExit("The draft came without a state.")
    result.state.save(file)
    return result


def _finish(engine: Engine, request: GenerationRequest, file: Path) -> GenerationResult:
    return _render(engine, request, Suspension(resumed=[StateFile.load(file)]))


def _render(
    engine: Engine, request: GenerationRequest, suspension: Suspension | None = None
) -> GenerationResult:
    (outcome,) = engine.generate([request], suspension=suspension)
    if not isinstance(outcome, GenerationResult):
        raise SystemExit(f"{request.prompt!r} failed: {outcome.message}")
    return outcome


if __name__ == "__main__":
    main()
