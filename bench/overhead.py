"""What the engine costs over a plain diffusers loop that renders the same variants exactly."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable

import diffusers
import numpy as np
import torch
from diffusers import WanPipeline
from numpy.typing import NDArray

from engine.engine import Engine
from engine.registry import checkpoint_folder, default_settings, get_model
from engine.types import GenerationRequest, GenerationResult

MODEL_ID = "adloom-tiny"
SEED = 7
BACKDROPS = ("beach", "forest", "snow", "desert", "mountains", "studio", "city street")

Frames = list[NDArray[np.uint8]]


def measure(*, variants: int, runs: int) -> str:
    """Render the variants `runs` times on each side in turn; a Markdown table of the medians."""
    requests = _requests(variants)
    engine = Engine()
    pipeline = WanPipeline.from_pretrained(checkpoint_folder(MODEL_ID))
    pipeline.set_progress_bar_config(disable=True)
    sides: dict[str, Callable[[], Frames]] = {
        "plain diffusers loop": lambda: _plain(pipeline, requests),
        "Adloom, exact": lambda: _adloom(engine, requests),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    frames: dict[str, Frames] = {}
    for render in sides.values():
        render()  # the first render loads and warms up
    for _ in range(runs):
        for name, render in sides.items():
            start = time.perf_counter()
            frames[name] = render()
            seconds[name].append((time.perf_counter() - start) / variants)
    return _table(seconds, frames)


def _requests(variants: int) -> list[GenerationRequest]:
    settings = default_settings(MODEL_ID)
    return [
        GenerationRequest(
            request_id=str(number),
            prompt=f"a red sneaker on {BACKDROPS[number % len(BACKDROPS)]}, take {number}",
            seed=SEED,
            settings=settings,
        )
        for number in range(variants)
    ]


def _plain(pipeline: WanPipeline, requests: list[GenerationRequest]) -> Frames:
    spec = get_model(MODEL_ID)
    clips: Frames = []
    for request in requests:
        settings = request.settings
        video = pipeline(
            prompt=request.prompt,
            negative_prompt=request.negative_prompt,
            width=settings.width,
            height=settings.height,
            num_frames=settings.num_frames,
            num_inference_steps=settings.num_inference_steps,
            guidance_scale=settings.guidance_scale,
            max_sequence_length=spec.max_sequence_length,
            generator=torch.Generator("cpu").manual_seed(request.seed),
            output_type="np",
        ).frames[0]
        clips.append((video * 255).round().astype(np.uint8))
    return clips


def _adloom(engine: Engine, requests: list[GenerationRequest]) -> Frames:
    outcomes = {outcome.request_id: outcome for outcome in engine.generate(requests)}
    clips: Frames = []
    for request in requests:
        outcome = outcomes[request.request_id]
        if not isinstance(outcome, GenerationResult):
            raise SystemExit(f"Variant {request.request_id} failed: {outcome.message}")
        clips.append(outcome.frames)
    return clips


def _table(seconds: dict[str, list[float]], frames: dict[str, Frames]) -> str:
    (baseline, baseline_clips), *_ = frames.items()
    base = statistics.median(seconds[baseline])
    lines = [
        f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, diffusers {diffusers.__version__}",
        "",
        "| what | seconds per variant, median | ratio | frames equal the baseline's |",
        "|---|---|---|---|",
    ]
    for name, values in seconds.items():
        median = statistics.median(values)
        pairs = zip(frames[name], baseline_clips, strict=True)
        is_equal = all(np.array_equal(clip, other) for clip, other in pairs)
        lines.append(
            f"| {name} | {median:.3f} | {base / median:.2f}x | {'yes' if is_equal else 'NO'} |"
        )
    return "\n".join(lines)
