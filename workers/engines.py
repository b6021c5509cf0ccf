"""What a render worker needs of an engine, and the real one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from app.db import Database
from app.services import calibrations
from engine.calibration import Calibration
from engine.errors import EngineError
from engine.suspending import Suspension
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Progress,
    RenderSettings,
)
from workers.loop import DATABASE_AWAY

logger = logging.getLogger(__name__)

Outcome = GenerationResult | GenerationFailure


class RenderEngine(Protocol):
    """`engine.Engine`, or a stand-in for a GPU in tests and benchmarks."""

    def generate(
        self,
        requests: Iterable[GenerationRequest],
        *,
        on_progress: Callable[[Progress], None] | None = None,
        should_cancel: Callable[[str], bool] | None = None,
        suspension: Suspension | None = None,
    ) -> Iterator[Outcome]: ...


EngineFactory = Callable[[Database], RenderEngine]


def make_engine(database: Database) -> RenderEngine:
    """The engine with the settings of the environment; models load with their first request."""
    # Local import: it brings torch in, which a control worker never loads.
    from engine.engine import Engine

    return Engine(calibration=calibration_finder(database))


def calibration_finder(
    database: Database,
) -> Callable[[RenderSettings], Calibration | None]:
    """Looks up what was measured for some settings, anew each time: other workers measure too."""

    def find(settings: RenderSettings) -> Calibration | None:
        try:
            with database.system_scope() as session:
                return calibrations.load_with_shipped(session, settings.model_id).find(settings)
        except DATABASE_AWAY as error:
            reason = str(error).partition("\n")[0]
            logger.warning("rendering as if nothing had been measured: %s", reason)
        except EngineError as error:
            logger.warning("nothing measured can be read: %s", error)
        return None

    return find
