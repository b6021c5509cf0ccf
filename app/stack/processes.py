"""Finding and ending operating-system processes that outlived the command that started them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil


def find_process(pid: int | None, *, name: str) -> psutil.Process | None:
    """The live process `pid` if its program is called `name`; a recycled pid is not mistaken."""
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        is_it = process.name().startswith(name) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return None
    return process if is_it else None


def find_recorded(pid: int, created_at: float) -> psutil.Process | None:
    """The live process that was recorded with this id and start time."""
    try:
        process = psutil.Process(pid)
        is_it = (
            abs(process.create_time() - created_at) < 1 and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return None
    return process if is_it else None


def read_pid(path: Path) -> int | None:
    """The number in the first line of a pid file, or None."""
    try:
        return int(path.read_text().splitlines()[0])
    except (OSError, ValueError, IndexError):
        return None


def end(
    process: psutil.Process, *, first: signal.Signals, then: signal.Signals, wait_s: float
) -> None:
    """Send `first`, wait, send `then` if it still lives, and wait until it is gone."""
    for signal_number, patience_s in ((first, wait_s), (then, 10.0)):
        try:
            process.send_signal(signal_number)
        except psutil.NoSuchProcess:
            return
        if wait_gone(process, patience_s):
            return


def end_group(pid: int, signal_number: signal.Signals) -> None:
    """Signal a process that leads its own group, and everything it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal_number)


def wait_gone(process: psutil.Process, timeout_s: float) -> bool:
    """Whether the process ended in time; an unreaped child counts as ended."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False
