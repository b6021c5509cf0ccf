"""Names of render workers that say which process of which machine they are, or were."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")
_MAX_HOST = 60
# Fields of /proc/<pid>/stat behind the command: the state is the first, the start the 20th.
_STATE_AT, _START_AT = 0, 19
_ENDED_STATES = frozenset("ZX")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerIdentity:
    """One run of one process: `machine` is where its id counts, `started` tells ids used again.

    `machine` stands for one boot of one kernel and one namespace of process ids: two containers
    that share a host name, or a host before and after a reboot, are different machines.
    """

    host: str
    pid: int
    started: str
    machine: str

    @property
    def name(self) -> str:
        """Leases are held and renewed under this name; no other run ever has it."""
        return f"{self.host}:{self.pid}:{self.started}:{self.machine}"

    @classmethod
    def current(cls) -> WorkerIdentity:
        """This process. Where the system does not say enough, nobody will take it for dead."""
        pid = os.getpid()
        return cls(
            host=socket.gethostname()[:_MAX_HOST].replace(":", "-"),
            pid=pid,
            started=_start_of(pid) or secrets.token_hex(4),
            machine=this_machine() or f"unknown-{secrets.token_hex(4)}",
        )

    @classmethod
    def parse(cls, name: str) -> WorkerIdentity | None:
        """The worker of a name; None when it was not made here."""
        host, *rest = name.split(":")
        if len(rest) != 3 or not rest[0].isdecimal():
            return None
        return cls(host=host, pid=int(rest[0]), started=rest[1], machine=rest[2])

    def is_gone(self) -> bool:
        """Whether the process has certainly ended; False when that cannot be known from here."""
        if self.machine != this_machine():
            return False
        if not psutil.pid_exists(self.pid):
            return True
        started = _start_of(self.pid)
        # An id that is in use again belongs to a later process. One whose start we may not see
        # counts as alive.
        return _has_ended(self.pid) or (started is not None and started != self.started)


def this_machine() -> str | None:
    """What a process id of ours means: the boot, and the namespace that ids are counted in."""
    try:
        if _BOOT_ID.exists():
            parts = [_BOOT_ID.read_text().strip(), str(_PID_NAMESPACE.readlink())]
        elif hasattr(os, "uname") and os.uname().sysname == "Darwin":
            parts = [socket.gethostname(), str(round(psutil.boot_time()))]
        else:
            return None
    except OSError:
        return None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _start_of(pid: int) -> str | None:
    """When a process started: in clock ticks since the boot, which no change of the clock moves."""
    if _BOOT_ID.exists():
        fields = _stat(pid)
        return fields[_START_AT] if fields else None
    try:
        return f"{psutil.Process(pid).create_time():.3f}"
    except psutil.Error:
        return None


def _has_ended(pid: int) -> bool:
    """Whether nothing but the entry of a process is left, which its parent has not read yet."""
    if _BOOT_ID.exists():
        fields = _stat(pid)
        return bool(fields) and fields[_STATE_AT] in _ENDED_STATES
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _stat(pid: int) -> list[str]:
    try:
        # The command may hold blanks and brackets; behind the last bracket all is numbers.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
