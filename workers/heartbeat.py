"""Keeps the leases of a render worker alive, says how far it is, knows what it should stop."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from uuid import UUID

from app.config import Config
from app.db import Database
from app.services import in_flight, leases
from app.services.in_flight import InHand
from app.services.leases import ClaimedGroup
from engine.types import Progress
from workers.loop import Loop
from workers.phases import GroupClock

logger = logging.getLogger(__name__)

# sysexits.h: a failure that a restart may mend.
EXIT_HUNG = 75
# How often the worker says how far it is, while there is anything new to say.
REPORT_S = 1.0
# What comes in hand is told at once, but no more often than this.
MIN_REPORT_S = 0.05


class Heartbeat(Loop):
    """Renews on a connection of its own, so that nothing in the process can hold it up."""

    def __init__(self, config: Config, *, worker: str, is_hung: Callable[[], bool]) -> None:
        super().__init__(name="heartbeat", poll_s=min(REPORT_S, config.workers.heartbeat_s))
        self._renew_s = config.workers.heartbeat_s
        self._renew_at = 0.0
        self._database = Database(config, pool_size=1)
        self._worker = worker
        self._lease_s = config.workers.lease_s
        self._is_hung = is_hung
        self._lock = threading.Lock()
        self._held: set[UUID] = set()
        self._group: ClaimedGroup | None = None
        self._steps: dict[UUID, int] = {}
        self._clock = GroupClock()
        # Jobs that the engine asked about in its last two rounds.
        self._round: set[UUID] = set()
        self._last_round: set[UUID] = set()
        self._has_rescued = False
        self._reported: InHand | None = None
        self._cancelled: set[UUID] = set()
        self._lost: set[UUID] = set()

    def hold(self, group: ClaimedGroup) -> None:
        """Watch over jobs that were just claimed."""
        with self._lock:
            self._held.update(job.job_id for job in group.jobs)
            self._group = group
            self._steps = {job.job_id: 0 for job in group.jobs}
            self._round, self._last_round = set(), set()
            self._clock.begin(group)

    def take_up(self, job_id: UUID) -> None:
        """The engine is about to work on the job; told at once when it did not do so before.

        It asks about all jobs of a forward before it runs it, so a job that comes again begins a
        new round. Two rounds are kept, since one of them is not complete yet.
        """
        with self._lock:
            is_new = job_id not in self._round | self._last_round
            if job_id in self._round:
                self._last_round, self._round = self._round, set()
            self._round.add(job_id)
            self._clock.take_up()
        if is_new:
            self.wake()

    def put_down(self, job_id: UUID) -> None:
        """The engine is done with the job, however it ended."""
        with self._lock:
            self._round.discard(job_id)
            self._last_round.discard(job_id)
            self._clock.put_down()

    def note(self, progress: Progress) -> None:
        """Take in how far a job is; told to others with the next report."""
        with self._lock:
            self._steps[UUID(progress.request_id)] = progress.step
            jobs = self._group.jobs if self._group else ()
            self._clock.note_steps(
                sum(self._steps.values()), sum(job.settings.last_step for job in jobs)
            )

    def drop(self, job_ids: Iterable[UUID]) -> None:
        """Forget jobs that ended or were handed back."""
        gone = set(job_ids)
        with self._lock:
            self._held -= gone
            self._cancelled -= gone
            self._lost -= gone

    def is_lost(self, job_id: UUID) -> bool:
        """Whether the job belongs to somebody else by now."""
        return job_id in self._lost

    def should_cancel(self, job_id: UUID) -> bool:
        """Whether going on with the job is of no use."""
        return job_id in self._lost or job_id in self._cancelled

    def turn(self) -> bool:
        if self._is_hung():
            # Nothing can interrupt a thread that is stuck in the device; a new process can.
            logger.critical("a render hangs beyond its deadline: this process ends to be restarted")
            os._exit(EXIT_HUNG)
        if not self._has_rescued:
            self._rescue_dead()
        # The next turn may be up to a quarter of its time late.
        is_due = time.monotonic() + 1.25 * self._poll_s >= self._renew_at
        if is_due:
            self._renew()
        self._report(is_repeated=is_due)
        self._stopping.wait(MIN_REPORT_S)
        return False

    def _rescue_dead(self) -> None:
        """Take back what a killed worker of this machine held: its successor comes up at once."""
        with self._database.system_scope() as session:
            rescued = leases.rescue_dead(session)
        self._has_rescued = True
        if rescued:
            logger.warning("took %d job(s) from a worker of this machine that has ended", rescued)

    def _renew(self) -> None:
        with self._lock:
            before = frozenset(self._held)
        if not before:
            return
        with self._database.system_scope() as session:
            renewal = leases.renew(session, worker=self._worker, lease_s=self._lease_s)
        self._renew_at = time.monotonic() + self._renew_s
        with self._lock:
            # Jobs that were claimed or that ended meanwhile are judged by the next renewal.
            lost = (before & self._held) - renewal.held - self._lost
            self._lost |= lost
            self._cancelled |= renewal.cancelled & self._held
        if lost:
            logger.warning("lost the lease on %d job(s): %s", len(lost), _names(lost))

    def _report(self, *, is_repeated: bool) -> None:
        """Say how far the jobs in hand are, if that is news; `is_repeated` says it anyway."""
        in_hand = self._in_hand()
        if in_hand == self._reported and not (is_repeated and in_hand):
            return
        with self._database.system_scope() as session:
            in_flight.report(session, worker=self._worker, in_hand=in_hand)
        self._reported = in_hand

    def _in_hand(self) -> InHand | None:
        with self._lock:
            group = self._group
            jobs = [job for job in group.jobs if job.job_id in self._held] if group else []
            if group is None or not jobs:
                return None
            return InHand(
                batch_id=jobs[0].batch_id,
                purpose=jobs[0].purpose,
                lease_token=group.token,
                job_count=len(jobs),
                group_count=len(group.jobs),
                phase=self._clock.phase,
                rest_s=self._clock.rest_s,
                steps_done=sum(self._steps.get(job.job_id, 0) for job in jobs),
                steps_planned=sum(job.settings.last_step for job in jobs),
                job_ids=tuple(sorted((self._round | self._last_round) & self._held)),
            )

    def close(self) -> None:
        self._database.dispose()


def _names(job_ids: Iterable[UUID]) -> str:
    return ", ".join(sorted(map(str, job_ids)))
