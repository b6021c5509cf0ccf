"""Stand-ins for a GPU: they render nothing, quickly, and misbehave on demand."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.registry import forwards_per_step
from engine.suspending import Suspension
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Progress,
    StageSeconds,
)
from engine.units import clip_units

Outcome = GenerationResult | GenerationFailure
SIZE = 32
# How far into a forward a crash comes, as on a device.
FORWARD_S = 0.3


@dataclass
class NullEngine:
    """Yields a small clip per request, each with a colour of its own prompt.

    A prompt that holds a word of `failures` fails with that failure instead. Finished renders are
    appended to `log`, one line with process and request id, so that renders can be counted over
    several processes.
    """

    step_s: float = 0.0
    failures: dict[str, GenerationFailure | Exception] = field(default_factory=dict)
    log: Path | None = None
    rendered: list[str] = field(default_factory=list)
    # Set when a request's first step begins; tests wait for it.
    is_busy: threading.Event = field(default_factory=threading.Event)
    on_step: Callable[[GenerationRequest], None] = lambda _: None

    def generate(
        self,
        requests: Iterable[GenerationRequest],
        *,
        on_progress: Callable[[Progress], None] | None = None,
        should_cancel: Callable[[str], bool] | None = None,
        suspension: Suspension | None = None,
    ) -> Iterator[Outcome]:
        self._on_progress = on_progress or (lambda _: None)
        self._suspension = suspension
        for request in requests:
            yield self._render(request, should_cancel or (lambda _: False))

    def _render(self, request: GenerationRequest, should_cancel: Callable[[str], bool]) -> Outcome:
        for word, failure in self.failures.items():
            if word in request.prompt:
                if isinstance(failure, Exception):
                    raise failure
                return _of(
                    request, failure.code, failure.message, is_retryable=failure.is_retryable
                )
        steps = request.settings.num_inference_steps
        for step in range(steps):
            if should_cancel(request.request_id):
                return _of(request, "cancelled", "It was cancelled.", is_retryable=False)
            if self._suspension is not None and self._suspension.is_asked:
                return _of(request, "suspended", "It was stopped.", is_retryable=True)
            self.is_busy.set()
            self.on_step(request)
            time.sleep(self.step_s)
            self._on_progress(
                Progress(request_id=request.request_id, step=step + 1, num_steps=steps)
            )
        self.rendered.append(request.prompt)
        if self.log is not None:
            with self.log.open("a") as log:
                log.write(f"{os.getpid()} {request.request_id}\n")
        return GenerationResult(
            request_id=request.request_id,
            frames=self.frames(request),
            fps=request.settings.fps,
            seconds=StageSeconds(denoise=steps * self.step_s),
            forwards_computed=steps * forwards_per_step(request.settings),
            work_units=clip_units(request.settings),
            provenance={"engine_version": "null"},
        )

    def frames(self, request: GenerationRequest) -> np.ndarray:
        """The clip, uint8 of shape (F, H, W, 3)."""
        shape = (request.settings.num_frames, SIZE, SIZE, 3)
        noise = np.random.default_rng(sum(map(ord, request.prompt)))
        return np.broadcast_to(noise.integers(0, 255, 3, dtype=np.uint8), shape).copy()


class CrashingEngine(NullEngine):
    """Kills its process within the first forward of a prompt that holds the word "poison"."""

    def _render(self, request: GenerationRequest, should_cancel: Callable[[str], bool]) -> Outcome:
        if "poison" in request.prompt:
            should_cancel(request.request_id)
            time.sleep(FORWARD_S)
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._render(request, should_cancel)


def _of(
    request: GenerationRequest, code: str, message: str, *, is_retryable: bool
) -> GenerationFailure:
    return GenerationFailure(
        request_id=request.request_id, code=code, message=message, is_retryable=is_retryable
    )
