"""What a render worker needs of an engine, and the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from engine.types import GenerationFailure, GenerationRequest, GenerationResult, Progress

Outcome = GenerationResult | GenerationFailure


class RenderEngine(Protocol):
    """`engine.Engine`, or a stand-in for a GPU in tests and benchmarks."""

    def generate(
        self,
        requests: Iterable[GenerationRequest],
        *,
        on_progress: Callable[[Progress], None] | None = None,
        should_cancel: Callable[[str], bool] | None = None,
    ) -> Iterator[Outcome]: ...


EngineFactory = Callable[[], RenderEngine]


def make_engine() -> RenderEngine:
    """The engine with the settings of the environment; models load with their first request."""
    # Local import: it brings torch in, which a control worker never loads.
    from engine.engine import Engine

    return Engine()
