"""Where the time of a plain diffusers run goes: text, denoising, decoding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from engine.caching.wrapping import replaced

STAGES = ("text", "denoise", "decode")


@contextmanager
def timed_stages(pipeline: Any) -> Iterator[dict[str, float]]:
    """Wall seconds of the pipeline's stages while the body runs; the rest is in none of them."""
    seconds = dict.fromkeys(STAGES, 0.0)
    parts = (
        ("text", pipeline, "encode_prompt"),
        ("denoise", pipeline.transformer, "forward"),
        ("decode", pipeline.vae, "decode"),
    )
    with ExitStack() as stack:
        for stage, owner, name in parts:
            timed = _timed(getattr(owner, name), seconds, stage)
            stack.enter_context(replaced(owner, **{name: timed}))
        yield seconds


def _timed(
    function: Callable[..., Any], seconds: dict[str, float], stage: str
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[stage] += time.perf_counter() - started

    return call
