"""Ends rendered jobs one by one while the next one renders: encode, upload, record."""

from __future__ import annotations

import logging
import queue
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from app.db import Database
from app.errors import StorageError, StorageFull
from app.services import leases
from app.services.leases import ClaimedJob, NewArtifact, NewUsage
from app.storage import Storage
from engine.errors import DiskFull, EngineError
from engine.types import GenerationFailure, GenerationResult
from workers.artifacts import store_render
from workers.engines import Outcome
from workers.heartbeat import Heartbeat
from workers.loop import DATABASE_AWAY
from workers.pause import Pause
from workers.states import StateStore
from workers.transactions import commit_patiently

logger = logging.getLogger(__name__)

# Frames of so many results wait in memory; then rendering waits.
MAX_WAITING = 2
# A store that does not answer is asked again after these pauses, before the work is given up.
STORE_AGAIN_AFTER_S = (1.0, 4.0, 15.0)


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """What came out of one job, under the token of its lease."""

    token: int
    job: ClaimedJob
    outcome: Outcome


class Finisher:
    """One thread that ends jobs in the order in which they were rendered."""

    def __init__(
        self,
        database: Database,
        storage: Storage,
        *,
        heartbeat: Heartbeat,
        pause: Pause,
        states: StateStore,
    ) -> None:
        self._database = database
        self._storage = storage
        self._heartbeat = heartbeat
        self._pause = pause
        self._states = states
        self._waiting: queue.Queue[Rendered | None] = queue.Queue(maxsize=MAX_WAITING)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="finisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, rendered: Rendered) -> None:
        """Hand over a result; waits while too many are waiting already."""
        self._waiting.put(rendered)

    def drain(self) -> None:
        """Wait until everything that was submitted has ended."""
        self._waiting.join()

    def stop(self) -> None:
        """No long waiting for servers from now on; what was submitted is still ended."""
        self._stopping.set()

    def join(self, timeout_s: float) -> bool:
        """End what is waiting, then the thread; False when it did not get there in time."""
        if self._thread.ident is None:
            return True
        try:
            self._waiting.put(None, timeout=timeout_s)
        except queue.Full:
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (rendered := self._waiting.get()) is not None:
            job_id = rendered.job.job_id
            try:
                self._finish(rendered)
            except DATABASE_AWAY:
                logger.error("job %s was not recorded before the end; its lease runs out", job_id)
            except Exception:
                logger.exception("job %s could not be ended; its deadline ends it", job_id)
            finally:
                self._heartbeat.drop([job_id])
                self._waiting.task_done()

    def _finish(self, rendered: Rendered) -> None:
        outcome = rendered.outcome
        if self._heartbeat.is_lost(rendered.job.job_id):
            self._tell_lost(rendered)
        elif isinstance(outcome, GenerationFailure):
            self._fail(rendered, outcome.code, outcome.message, is_retryable=outcome.is_retryable)
        else:
            self._succeed(rendered, outcome)

    def _succeed(self, rendered: Rendered, result: GenerationResult) -> None:
        job = rendered.job
        try:
            artifact = self._store(job, result)
            if result.state is not None:
                self._states.keep_draft(job, rendered.token, result.state)
            usage = NewUsage(units=result.work_units, render_s=result.seconds.total)
            self._commit(
                rendered,
                lambda session: leases.finish_succeeded(
                    session, job_id=job.job_id, token=rendered.token, artifact=artifact, usage=usage
                ),
            )
        except DATABASE_AWAY:
            raise
        except (StorageError, DiskFull) as error:
            self._pause.begin(str(error))
            self._commit(
                rendered,
                lambda session: (
                    leases.release(session, token=rendered.token, job_ids=[job.job_id]) > 0
                ),
            )
        except Exception as error:
            logger.exception("job %s was rendered but not stored", job.job_id)
            code = error.code if isinstance(error, EngineError) else "finish_error"
            message = f"The finished render could not be stored: {error}"
            self._fail(rendered, code, message, is_retryable=True)

    def _store(self, job: ClaimedJob, result: GenerationResult) -> NewArtifact:
        """Encode and upload, again for a while when the store does not answer."""
        with tempfile.TemporaryDirectory(prefix="adloom-") as folder:
            for wait_s in STORE_AGAIN_AFTER_S:
                try:
                    return store_render(self._storage, job, result, folder=Path(folder))
                except StorageFull:
                    raise
                except StorageError as error:
                    logger.warning("job %s: trying again in %g s: %s", job.job_id, wait_s, error)
                    if self._stopping.wait(wait_s):
                        raise
            return store_render(self._storage, job, result, folder=Path(folder))

    def _fail(self, rendered: Rendered, code: str, message: str, *, is_retryable: bool) -> None:
        self._commit(
            rendered,
            lambda session: leases.finish_failed(
                session,
                job_id=rendered.job.job_id,
                token=rendered.token,
                code=code,
                message=message,
                is_retryable=is_retryable,
            ),
        )

    def _commit(self, rendered: Rendered, work: Callable[[Session], bool]) -> None:
        """Write under the lease's token; `work` is False when the lease is somebody else's."""
        if not commit_patiently(self._database, work, is_stopping=self._stopping.is_set):
            self._tell_lost(rendered)

    def _tell_lost(self, rendered: Rendered) -> None:
        # What was uploaded stays: its key is its content, so whoever makes it again shares it.
        logger.warning(
            "job %s is no longer held by lease %d; its result is dropped",
            rendered.job.job_id,
            rendered.token,
        )
