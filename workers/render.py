"""The render loop: claims whole groups, renders them in the order of their plan, hands over."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Iterator
from uuid import UUID

from app.config import WorkerSettings
from app.db import Database
from app.services import leases
from app.services.leases import ClaimedGroup, ClaimedJob
from engine.errors import CheckpointError, ConfigError, GenerationSuspended, OutOfMemory
from engine.suspending import StateFile, Suspension
from engine.types import GenerationFailure, GenerationResult
from workers.engines import EngineFactory, Outcome, RenderEngine
from workers.finishing import Finisher, Rendered
from workers.heartbeat import Heartbeat
from workers.loop import Loop
from workers.pause import Pause
from workers.states import StateStore
from workers.timing import Timings
from workers.transactions import commit_patiently

logger = logging.getLogger(__name__)

# Families whose embeddings and caches the engine is likely to hold still.
HELD_FAMILIES = 4
# These say that this worker is broken, not the job: another worker may well render it.
WORKER_FAULTS = frozenset({CheckpointError.code, ConfigError.code})


class RenderLoop(Loop):
    """Owns the engine, which is made in its thread before the first claim."""

    def __init__(
        self,
        database: Database,
        *,
        worker: str,
        settings: WorkerSettings,
        engine_factory: EngineFactory,
        heartbeat: Heartbeat,
        finisher: Finisher,
        pause: Pause,
        states: StateStore,
    ) -> None:
        super().__init__(name="render", poll_s=settings.poll_s)
        self._database = database
        self._worker = worker
        self._settings = settings
        self._engine_factory = engine_factory
        self._heartbeat = heartbeat
        self._finisher = finisher
        self._pause = pause
        self._states = states
        self._timings = Timings(database)
        self._engine: RenderEngine | None = None
        self._held_affinity: deque[str] = deque(maxlen=HELD_FAMILIES)
        self._group: ClaimedGroup | None = None
        # Jobs of the group that the engine has not yielded yet, by request id.
        self._in_engine: dict[str, ClaimedJob] = {}
        # Jobs of the group that are to be handed back.
        self._unfinished: list[UUID] = []
        # When the engine last gave a sign of life; None while it has nothing to do.
        self._alive_at: float | None = None

    def turn(self) -> bool:
        if self._engine is None:
            self._engine = self._engine_factory(self._database)
        # Making it may have taken so long that the end was asked for meanwhile.
        if self.is_stopping or not self._pause.is_over():
            return False
        group = self._claim()
        if group is None:
            return False
        self._render(self._engine, group)
        return True

    @property
    def has_engine(self) -> bool:
        """False until the engine is made; before that no work is claimed."""
        return self._engine is not None

    def abandon(self) -> None:
        """Hand back what a silent engine has in hand; whatever comes of it later is dropped."""
        if self._group is not None:
            in_engine = [job.job_id for job in list(self._in_engine.values())]
            self._release(self._group, [*in_engine, *self._unfinished])

    def is_hung(self) -> bool:
        """Whether the engine has been silent for longer than any render may take."""
        alive_at = self._alive_at
        return alive_at is not None and (
            time.monotonic() - alive_at > self._settings.job_deadline_s
        )

    def _claim(self) -> ClaimedGroup | None:
        with self._database.system_scope() as session:
            group = leases.claim(
                session,
                worker=self._worker,
                held_affinity=tuple(self._held_affinity),
                limit=self._settings.claim_limit,
                lease_s=self._settings.lease_s,
                hard_deadline_s=self._settings.job_deadline_s,
            )
        if group is not None:
            self._heartbeat.hold(group)
            if group.affinity_key in self._held_affinity:
                self._held_affinity.remove(group.affinity_key)
            self._held_affinity.append(group.affinity_key)
            logger.info(
                "claimed %d job(s) of group %s, lease %d",
                len(group.jobs),
                group.group_key,
                group.token,
            )
        return group

    def _render(self, engine: RenderEngine, group: ClaimedGroup) -> None:
        if any(job.number > 1 for job in group.jobs):
            # It may kill this process; no finished render shall be lost and charged with it.
            self._finisher.drain()
        self._in_engine = {str(job.job_id): job for job in group.jobs}
        self._group = group
        self._unfinished = unfinished = []
        left_open: StateFile | None = None
        try:
            suspension = self._states.resume(group, lambda: self._is_interrupted)
            for outcome in self._outcomes(engine, group, suspension):
                job = self._in_engine.pop(outcome.request_id)
                self._heartbeat.put_down(job.job_id)
                if isinstance(outcome, GenerationResult):
                    self._timings.note(job.settings, outcome)
                if not self._pass_on(group, job, outcome):
                    unfinished.append(job.job_id)
            left_open = suspension.left_open
        except Exception as error:
            logger.exception("the engine broke off in group %s", group.group_key)
            self._fail_all(group, f"The engine broke off: {type(error).__name__}: {error}")
        if unfinished and left_open is not None:
            self._states.keep(group, unfinished, left_open)
        self._group = None
        self._release(group, unfinished)
        self._timings.save()

    def _fail_all(self, group: ClaimedGroup, message: str) -> None:
        for request_id, job in self._in_engine.items():
            failure = GenerationFailure(
                request_id=request_id, code="engine_error", message=message, is_retryable=True
            )
            self._finisher.submit(Rendered(token=group.token, job=job, outcome=failure))

    def _outcomes(
        self, engine: RenderEngine, group: ClaimedGroup, suspension: Suspension
    ) -> Iterator[Outcome]:
        """What the engine yields, with the watch on whether it hangs."""
        outcomes = engine.generate(
            [job.to_request() for job in group.jobs],
            on_progress=self._heartbeat.note,
            should_cancel=self._should_cancel,
            suspension=suspension,
        )
        while True:
            self._alive_at = time.monotonic()
            try:
                outcome = next(outcomes, None)
            finally:
                self._alive_at = None
            if outcome is None:
                return
            yield outcome

    def _should_cancel(self, request_id: str) -> bool:
        self._alive_at = time.monotonic()
        job_id = UUID(request_id)
        self._heartbeat.take_up(job_id)
        return self._heartbeat.should_cancel(job_id)

    @property
    def _is_interrupted(self) -> bool:
        return self.is_stopping or self._pause.is_on

    def _pass_on(self, group: ClaimedGroup, job: ClaimedJob, outcome: Outcome) -> bool:
        """Have the job ended with this outcome; False when it has to be handed back instead."""
        if isinstance(outcome, GenerationFailure):
            if outcome.code == GenerationSuspended.code:
                return False
            if outcome.code in WORKER_FAULTS:
                self._pause.begin(outcome.message)
                return False
            if outcome.code == OutOfMemory.code and len(group.jobs) > 1:
                logger.warning("job %s did not fit with its group: %s", job.job_id, outcome.message)
                self._release(group, [job.job_id], as_singles=True)
                return True
        self._finisher.submit(Rendered(token=group.token, job=job, outcome=outcome))
        return True

    def _release(
        self, group: ClaimedGroup, job_ids: Collection[UUID], *, as_singles: bool = False
    ) -> None:
        """Hand jobs back without charging their start."""
        if not job_ids:
            return
        try:
            released = commit_patiently(
                self._database,
                lambda session: leases.release(
                    session, token=group.token, job_ids=job_ids, as_singles=as_singles
                ),
                is_stopping=lambda: self.is_stopping,
            )
        finally:
            self._heartbeat.drop(job_ids)
        logger.info("handed back %d job(s) of group %s", released, group.group_key)
