"""Workers of this machine whose process has ended: told from live ones, and rescued at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import select

from app.db import Database
from app.models import Batch, JobState, RenderJob
from app.services import leases
from app.services.worker_identity import WorkerIdentity
from tests.factories import make_jobs

SAY_NAME = (
    "from app.services.worker_identity import WorkerIdentity; import time;"
    "print(WorkerIdentity.current().name, flush=True); time.sleep(600)"
)


@pytest.fixture
def neighbour() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another live process of this machine and its name."""
    process = subprocess.Popen([sys.executable, "-c", SAY_NAME], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process, process.stdout.readline().strip()
    process.kill()
    process.wait()
    process.stdout.close()


def claim_as(database: Database, batch: Batch, worker: str) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, ["a", "b"])
        assert leases.claim(session, worker=worker) is not None


def rescue(database: Database) -> int:
    with database.system_scope() as session:
        return leases.rescue_dead(session)


def test_the_leases_of_a_killed_worker_are_rescued_without_waiting(
    database: Database, batch: Batch, neighbour: tuple[subprocess.Popen[str], str]
) -> None:
    process, name = neighbour
    claim_as(database, batch, name)
    assert rescue(database) == 0, "it is alive"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert rescue(database) == 2
    with database.system_scope() as session:
        found = session.scalars(select(RenderJob.state)).all()
    assert set(found) == {JobState.RETRYABLE}


def test_a_killed_worker_that_nobody_has_reaped_is_dead(
    neighbour: tuple[subprocess.Popen[str], str],
) -> None:
    process, name = neighbour
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    worker = WorkerIdentity.parse(name)
    assert worker is not None
    assert worker.is_gone()


def test_a_live_worker_keeps_its_leases(database: Database, batch: Batch) -> None:
    claim_as(database, batch, WorkerIdentity.current().name)
    assert rescue(database) == 0


def test_a_worker_whose_process_id_is_in_use_again_is_dead(
    database: Database, batch: Batch
) -> None:
    earlier = replace(WorkerIdentity.current(), started="1")
    claim_as(database, batch, earlier.name)
    assert rescue(database) == 2


@pytest.mark.parametrize("machine", ["0123456789abcdef", "unknown-01234567"])
def test_nothing_is_said_of_workers_of_another_machine(
    database: Database, batch: Batch, machine: str
) -> None:
    elsewhere = replace(WorkerIdentity.current(), machine=machine, pid=2**22 + 1)
    claim_as(database, batch, elsewhere.name)
    assert rescue(database) == 0
    assert not elsewhere.is_gone()


@pytest.mark.parametrize("name", ["worker-1", "host:1:0a1b2c3d", "host:x:1:2"])
def test_a_name_that_is_none_of_ours_is_left_alone(
    database: Database, batch: Batch, name: str
) -> None:
    assert WorkerIdentity.parse(name) is None
    claim_as(database, batch, name)
    assert rescue(database) == 0


def test_a_name_leads_back_to_its_worker_and_fits_its_column() -> None:
    worker = WorkerIdentity.current()
    assert WorkerIdentity.parse(worker.name) == worker
    long = replace(worker, host="h" * 60, pid=2**22, started="9" * 12)
    assert len(long.name) <= 120
