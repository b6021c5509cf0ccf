"""Makes the Celery application of a worker process, with our loops as one of its boot steps."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import Any

from celery import Celery, bootsteps
from celery.apps.worker import Worker

from app.config import Config
from app.queues import WAKE_TASKS, Queue, celery_settings
from workers.engines import EngineFactory, make_engine
from workers.runtime import Runtime

# Longer than the blocking read of the consumer, so that silence is no error.
SOCKET_TIMEOUT_S = 5.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"
# They tell of every wake-up call, which would hide what the loops say.
CHATTY_LOGGERS = ("celery.worker.strategy", "celery.app.trace")


def create_celery(config: Config, *, engine_factory: EngineFactory = make_engine) -> Celery:
    """The application: `celery -A … worker -Q render` or `-Q control` runs the loops of a queue.

    `engine_factory` exists for tests and benchmarks that stand in for a GPU.
    """
    runtime = Runtime(config, engine_factory=engine_factory)
    app = Celery("adloom")
    app.conf.update(celery_settings(config, socket_timeout_s=SOCKET_TIMEOUT_S))
    app.conf.update(
        worker_log_format=LOG_FORMAT,
        worker_redirect_stdouts=False,
        worker_enable_remote_control=True,
    )
    for queue in Queue:
        _add_wake_task(app, runtime, queue)
    app.steps["worker"].add(_loops_step(runtime))
    for name in CHATTY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    return app


def _add_wake_task(app: Celery, runtime: Runtime, queue: Queue) -> None:
    def wake(hint: str = "") -> None:
        del hint  # the claim finds the best group itself
        runtime.wake(queue)

    app.task(wake, name=WAKE_TASKS[queue])


def _loops_step(runtime: Runtime) -> type[bootsteps.StartStopStep]:
    class Loops(bootsteps.StartStopStep):
        """Starts before the consumer, so that a broker that is down holds no work up."""

        requires = ("celery.worker.components:Pool",)

        def start(self, parent: Worker) -> None:
            served = parent.app.amqp.queues.consume_from
            runtime.start([queue for queue in Queue if queue.value in served])

        def close(self, parent: Worker) -> None:
            """The first of the boot steps' two calls at a shutdown: nothing has ended yet."""
            del parent
            runtime.stop()

        def stop(self, parent: Worker) -> None:
            runtime.stop()
            runtime.join()
            # Runs before every other handler, because it is the last to be registered.
            atexit.register(_end_at_once, parent.exitcode or 0)

        def terminate(self, parent: Any) -> None:
            self.stop(parent)

    return Loops


def _end_at_once(code: int) -> None:
    """End the process without the interpreter's tidying up: everything of ours has ended.

    Collecting what torch and the models left takes seconds of processor time, on a busy machine
    longer than anybody waits for a stop. And where a thread is still inside native code (a
    denoising step and the loading of torch cannot be interrupted), tidying up under it would abort
    the process ("terminate called without an active exception").
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
