"""One render worker: its loop, its heartbeat and its finisher, started and stopped together."""

from __future__ import annotations

import time

from app.config import Config
from app.db import Database
from app.storage import Storage
from workers.engines import EngineFactory
from workers.finishing import Finisher
from workers.heartbeat import Heartbeat
from workers.pause import Pause
from workers.render import RenderLoop
from workers.states import StateStore

# Of the time to stop, what the render gets; the rest is for storing what was rendered.
RENDER_SHARE = 0.75
JOIN_SLICE_S = 0.1


class RenderWorker:
    """Serves the queue `render`."""

    def __init__(
        self,
        config: Config,
        database: Database,
        storage: Storage,
        *,
        worker: str,
        engine_factory: EngineFactory,
    ) -> None:
        pause = Pause(storage, pause_s=config.workers.pause_s)
        self._heartbeat = Heartbeat(config, worker=worker, is_hung=self._is_hung)
        states = StateStore(database, storage, draft_days=config.workers.draft_days)
        self._finisher = Finisher(
            database, storage, heartbeat=self._heartbeat, pause=pause, states=states
        )
        self._loop = RenderLoop(
            database,
            worker=worker,
            settings=config.workers,
            engine_factory=engine_factory,
            heartbeat=self._heartbeat,
            finisher=self._finisher,
            pause=pause,
            states=states,
        )

    def start(self) -> None:
        self._heartbeat.start()
        self._finisher.start()
        self._loop.start()

    def wake(self) -> None:
        self._loop.wake()

    def stop(self) -> None:
        self._loop.stop()
        self._finisher.stop()

    def join(self, timeout_s: float) -> bool:
        """Rendering ends first, then what was rendered is stored; leases are renewed to the end."""
        deadline = time.monotonic() + timeout_s
        is_done = self._join_loop(RENDER_SHARE * timeout_s)
        if not is_done:
            # A step longer than the patience of whoever stops us: its result is dropped.
            self._loop.abandon()
        is_done &= self._finisher.join(max(0.1, deadline - time.monotonic()))
        self._heartbeat.stop()
        self._heartbeat.join(1.0)
        return is_done

    def _join_loop(self, timeout_s: float) -> bool:
        """Wait for the step in hand; not for an engine in the making, for it holds no work."""
        deadline = time.monotonic() + timeout_s
        while not self._loop.join(JOIN_SLICE_S):
            if time.monotonic() >= deadline or not self._loop.has_engine:
                return False
        return True

    def _is_hung(self) -> bool:
        return self._loop.is_hung()
