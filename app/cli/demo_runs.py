"""Which batches the demos of this machine launched, so that the next one ends those left behind."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import UUID

from app.cli.demo_batch import UNFINISHED, DemoBatch
from app.db import Database
from app.errors import Conflict, NotFound
from app.services import batches
from app.stack.folder import StateFolder, write_private
from app.stack.record import Recorded

LOCK = "demo-runs"


@dataclass(frozen=True, kw_only=True)
class CancelledRun:
    """A batch of an earlier demo that would have been rendered first; what it finished is kept."""

    name: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class _Run:
    batch_id: UUID
    process: Recorded

    def to_dict(self) -> dict[str, object]:
        return {"batch_id": str(self.batch_id), "process": asdict(self.process)}


def take_over(database: Database, demo: DemoBatch, folder: StateFolder) -> list[CancelledRun]:
    """Note this demo's batch, and cancel unfinished ones of demos that were broken off.

    A demo that is still being watched in another terminal keeps its batch, and so does whatever
    was launched in the dashboard.
    """
    with folder.lock(LOCK):
        noted = _read(folder)
        watched = [run for run in noted if run.process.find() is not None]
        left = {run.batch_id for run in noted} - {run.batch_id for run in watched}
        cancelled = [_cancel(database, demo, batch_id) for batch_id in left - {demo.batch.id}]
        mine = _Run(batch_id=demo.batch.id, process=Recorded.of(os.getpid()))
        runs = [run.to_dict() for run in (*watched, mine)]
        write_private(_path(folder), json.dumps(runs, indent=1))
    return [run for run in cancelled if run is not None]


def _cancel(database: Database, demo: DemoBatch, batch_id: UUID) -> CancelledRun | None:
    try:
        with database.workspace_scope(demo.actor) as session:
            batch = batches.get_batch(session, demo.actor, batch_id)
            if batch.state not in UNFINISHED:
                return None
            progress = batches.get_progress(session, demo.actor, batch_id)
            batches.cancel_batch(session, demo.actor, batch_id)
            return CancelledRun(name=batch.name, done=progress.done, total=progress.total)
    except (Conflict, NotFound):
        # It ended in this moment, or its workspace is not there any more.
        return None


def _read(folder: StateFolder) -> list[_Run]:
    """The noted runs; an unreadable note counts as none."""
    try:
        return [
            _Run(batch_id=UUID(item["batch_id"]), process=Recorded(**item["process"]))
            for item in json.loads(_path(folder).read_text())
        ]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []


def _path(folder: StateFolder) -> Path:
    return folder.root / "demo_runs.json"
