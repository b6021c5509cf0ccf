"""Finding and ending operating-system processes that outlived the command that started them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

SLICE_S = 0.1


def run_watched(
    command: Sequence[str], *, check: Callable[[], None], **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; when `check`, called meanwhile, raises, the program is killed.

    It has a session of its own: Ctrl-C in the terminal reaches this process alone.
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    ) as process:
        while True:
            try:
                output, errors = process.communicate(timeout=SLICE_S)
                return subprocess.CompletedProcess(command, process.returncode, output, errors)
            except subprocess.TimeoutExpired:
                try:
                    check()
                except BaseException:
                    end_group(process.pid, signal.SIGKILL)
                    raise


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
    process: psutil.Process,
    *signals: signal.Signals,
    wait_s: float,
    should_hurry: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda message: None,
) -> bool:
    """Send the signals, one after the other as long as it lives; whether it is gone.

    Each is given `wait_s`, the first less when `should_hurry()`. What follows the first is told.
    """
    for number, signal_number in enumerate(signals):
        if number > 0:
            say(f"pid {process.pid} has not ended yet; sending it {signal_number.name}.")
        try:
            process.send_signal(signal_number)
        except psutil.NoSuchProcess:
            return True
        if wait_gone(process, wait_s, give_up=should_hurry if number == 0 else lambda: False):
            return True
    return False


def end_group(pid: int, signal_number: signal.Signals) -> None:
    """Signal a process that leads its own group, and everything it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal_number)


def wait_gone(
    process: psutil.Process, timeout_s: float, *, give_up: Callable[[], bool] = lambda: False
) -> bool:
    """Whether the process ended in time; an unreaped child counts as ended."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not give_up():
        try:
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False
