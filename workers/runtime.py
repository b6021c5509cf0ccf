"""The loops of one worker process: made for the queues that it serves, woken, stopped in order."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Protocol

from app.config import Config
from app.db import Database
from app.queues import Doorbell, Queue
from app.services.worker_identity import WorkerIdentity
from app.storage import storage_from_url
from workers.control import ControlLoop
from workers.engines import EngineFactory, make_engine
from workers.webhook_loop import WebhookLoop

logger = logging.getLogger(__name__)

# For the step in hand and for results that wait to be stored; process managers wait ten seconds.
STOP_TIMEOUT_S = 8.0


class Part(Protocol):
    """What serves one queue."""

    def start(self) -> None: ...

    def wake(self) -> None: ...

    def stop(self) -> None:
        """Begin to stop; returns at once."""

    def join(self, timeout_s: float) -> bool:
        """Wait until it has stopped; False when that takes longer."""


class Runtime:
    """Everything a worker process runs besides Celery's consumer."""

    def __init__(self, config: Config, *, engine_factory: EngineFactory = make_engine) -> None:
        self._config = config
        self._engine_factory = engine_factory
        self._parts: list[tuple[Queue, Part]] = []

    def start(self, queues: Collection[Queue]) -> None:
        """Start the loops of these queues; they work whether or not the broker answers."""
        database = Database(self._config)
        if Queue.CONTROL in queues:
            control = ControlLoop(
                database,
                Doorbell(self._config),
                storage_from_url(self._config),
                settings=self._config.workers,
            )
            # Connections of their own: many answers at once do not hold up the other duties.
            webhooks = WebhookLoop(Database(self._config), self._config)
            self._parts += [(Queue.CONTROL, control), (Queue.CONTROL, webhooks)]
        if Queue.RENDER in queues:
            # Local import: it brings the media libraries in, which a control worker never loads.
            from workers.render_worker import RenderWorker

            render = RenderWorker(
                self._config,
                database,
                storage_from_url(self._config),
                worker=WorkerIdentity.current().name,
                engine_factory=self._engine_factory,
            )
            self._parts.append((Queue.RENDER, render))
        for _, part in self._parts:
            part.start()

    def wake(self, queue: Queue) -> None:
        for served, part in self._parts:
            if served is queue:
                part.wake()

    def stop(self) -> None:
        """Ask all loops to stop; safe to call from a signal handler, and more than once."""
        for _, part in self._parts:
            part.stop()

    def join(self) -> bool:
        """Wait for the loops, but not for ever; False when one of their threads still runs.

        What it had in hand was handed back; a lease that stays behind runs out by itself.
        """
        deadline = time.monotonic() + STOP_TIMEOUT_S
        is_done = True
        for queue, part in self._parts:
            if not part.join(max(0.1, deadline - time.monotonic())):
                logger.warning("the %s loop is left in the midst of something long", queue)
                is_done = False
        return is_done
