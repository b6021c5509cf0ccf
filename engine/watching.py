"""Which requests of a run are still wanted, and the caller's callbacks for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from engine.errors import EngineError, GenerationCancelled
from engine.suspending import Suspension
from engine.types import GenerationFailure, GenerationRequest, Progress

logger = logging.getLogger(__name__)

ProgressCallback = Callable[[Progress], None]
CancelCheck = Callable[[str], bool]


class Watch:
    """Asks whether requests are cancelled, reports their steps, and collects their failures.

    Whatever a callback raises is the failure of the request that it was called for.
    """

    def __init__(
        self,
        *,
        on_progress: ProgressCallback | None,
        should_cancel: CancelCheck | None,
        suspension: Suspension | None = None,
    ) -> None:
        self.suspension = suspension or Suspension()
        self._on_progress = on_progress
        self._should_cancel = should_cancel
        self._ended: set[str] = set()
        self._steps: dict[str, int] = {}
        self._failures: list[GenerationFailure] = []

    def open_ones(
        self, requests: Iterable[GenerationRequest], *, step: int
    ) -> list[GenerationRequest]:
        """Those still wanted; a request cancelled by now failed after `step` steps."""
        for request in self.unended(requests):
            self._call(self._poll, request, step)
        return self.unended(requests)

    def after_step(self, requests: Iterable[GenerationRequest], step: int) -> bool:
        """Report a step that was done for all of them; False when none is wanted any more."""
        for request in self.unended(requests):
            self._call(self._report, request, step)
        return bool(self.open_ones(requests, step=step))

    def fail(self, requests: Iterable[GenerationRequest], error: Exception) -> None:
        """End requests with an error; one that nobody foresaw may pass on another try."""
        for request in self.unended(requests):
            self.end(request)
            self._failures.append(failure_of(request, error))

    def end(self, request: GenerationRequest) -> None:
        """The request has its result, or its failure."""
        self._ended.add(request.request_id)

    def unended(self, requests: Iterable[GenerationRequest]) -> list[GenerationRequest]:
        """Those without result or failure; nobody is asked."""
        return [request for request in requests if request.request_id not in self._ended]

    def take_failures(self) -> Sequence[GenerationFailure]:
        """Failures that were not handed out yet."""
        taken, self._failures = self._failures, []
        return taken

    def _poll(self, request: GenerationRequest, step: int) -> None:
        if self._should_cancel is not None and self._should_cancel(request.request_id):
            raise GenerationCancelled(request.request_id, step)

    def _report(self, request: GenerationRequest, step: int) -> None:
        # A render that is tried or checked again does not go through its steps anew.
        if step <= self._steps.get(request.request_id, 0):
            return
        self._steps[request.request_id] = step
        if self._on_progress is not None:
            self._on_progress(
                Progress(
                    request_id=request.request_id,
                    step=step,
                    num_steps=request.settings.last_step,
                )
            )

    def _call(
        self,
        callback: Callable[[GenerationRequest, int], None],
        request: GenerationRequest,
        step: int,
    ) -> None:
        try:
            callback(request, step)
        except Exception as error:
            self.fail([request], error)


def failure_of(request: GenerationRequest, error: Exception) -> GenerationFailure:
    """What the caller gets instead of a result."""
    if isinstance(error, EngineError):
        return GenerationFailure.from_error(request.request_id, error)
    logger.error("request %s failed", request.request_id, exc_info=error)
    return GenerationFailure(
        request_id=request.request_id,
        code="render_error",
        message=f"Rendering failed: {type(error).__name__}: {error}",
        is_retryable=True,
    )
