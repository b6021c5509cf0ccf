"""The note that a supervisor leaves of its processes, so that any later command finds them."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from app.stack.folder import StateFolder, write_private
from app.stack.processes import end_group, find_recorded, wait_gone

LOCK = "supervisor"
ORPHAN_GRACE_S = 10.0


@dataclass(frozen=True)
class Recorded:
    """One process; its start time tells it from a later one with the same id."""

    pid: int
    created_at: float

    @classmethod
    def of(cls, pid: int) -> Recorded:
        return cls(pid, psutil.Process(pid).create_time())

    def find(self) -> psutil.Process | None:
        return find_recorded(self.pid, self.created_at)


@dataclass(frozen=True, kw_only=True)
class Record:
    """Who supervises, where the web server is (None: not started), and the children by name."""

    supervisor: Recorded
    web_url: str | None
    children: Mapping[str, Recorded]

    def write(self, folder: StateFolder) -> None:
        write_private(_path(folder), json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: StateFolder) -> Record | None:
        """The last record, or None; an unreadable one counts as none."""
        try:
            raw = json.loads(_path(folder).read_text())
            return cls(
                supervisor=Recorded(**raw["supervisor"]),
                web_url=raw["web_url"],
                children={name: Recorded(**child) for name, child in raw["children"].items()},
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None


def running(folder: StateFolder) -> Record | None:
    """The record of the supervisor that runs now, or None."""
    record = Record.read(folder)
    return record if record is not None and record.supervisor.find() is not None else None


def end_orphans(folder: StateFolder, say: Callable[[str], None]) -> int:
    """Stop what a killed supervisor left behind; returns how many there were."""
    record = Record.read(folder)
    if record is None or record.supervisor.find() is not None:
        return 0
    orphans = {
        name: process for name, child in record.children.items() if (process := child.find())
    }
    for name, process in orphans.items():
        say(f"Stopping {name} (pid {process.pid}), left over from a supervisor that was killed.")
        process.send_signal(signal.SIGTERM)
    for name, process in orphans.items():
        if not wait_gone(process, ORPHAN_GRACE_S):
            say(f"{name} (pid {process.pid}) did not end in {ORPHAN_GRACE_S:.0f} s; killed it.")
            end_group(process.pid, signal.SIGKILL)
    forget(folder)
    return len(orphans)


def forget(folder: StateFolder) -> None:
    _path(folder).unlink(missing_ok=True)


def _path(folder: StateFolder) -> Path:
    return folder.run / "processes.json"
