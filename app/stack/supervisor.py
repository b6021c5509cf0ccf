"""Starts the worker and web processes, restarts those that crash, and stops them all."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.paths import ROOT
from app.stack.folder import StateFolder
from app.stack.logs import LogTail, rotate
from app.stack.processes import end_group
from app.stack.record import Record, Recorded

STOP_GRACE_S = 15.0
KILL_WAIT_S = 5.0
BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
# A process that lived this long is not in a crash loop.
STABLE_AFTER_S = 60.0
HOPELESS_AFTER = 3


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """One process to keep running; its output goes to `log`."""

    name: str
    command: Sequence[str]
    log: Path


@dataclass
class ManagedProcess:
    """A process with the count of its crashes in a row."""

    spec: ProcessSpec
    environment: Mapping[str, str]
    tail: LogTail = field(init=False)
    crashes: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _started_at: float = 0.0
    _restart_at: float | None = None

    def __post_init__(self) -> None:
        rotate(self.spec.log)
        self.tail = LogTail.at_end(self.spec.log)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def is_hopeless(self) -> bool:
        """It crashes as soon as it starts, again and again."""
        return self.crashes >= HOPELESS_AFTER

    def start(self) -> None:
        with self.spec.log.open("ab") as output:
            # Its own session: Ctrl-C in the terminal reaches the supervisor alone.
            self._process = subprocess.Popen(
                list(self.spec.command),
                cwd=ROOT,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started_at = time.monotonic()
        self._restart_at = None

    def tick(self) -> str | None:
        """Restart it when that is due; returns what there is to tell."""
        if self._process is None or self._process.poll() is None:
            return None
        now = time.monotonic()
        if self._restart_at is None:
            if now - self._started_at >= STABLE_AFTER_S:
                self.crashes = 0
            delay_s = BACKOFF_S[min(self.crashes, len(BACKOFF_S) - 1)]
            self.crashes += 1
            self._restart_at = now + delay_s
            return (
                f"{self.spec.name} ended with {_outcome(self._process.returncode)}; starting it "
                f"again in {delay_s:.0f} s. Its log: {self.spec.log}"
            )
        if now >= self._restart_at:
            self.start()
        return None

    def terminate(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        if self._process is not None:
            end_group(self._process.pid, signal.SIGKILL)
            # Bounded, because the system does not end a process that hangs in a driver.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=KILL_WAIT_S)


class Supervisor:
    """Watches a set of processes; call `tick` several times a second."""

    def __init__(
        self, folder: StateFolder, *, web_url: str | None, say: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._web_url = web_url
        self._say = say
        self._pids: dict[str, int] = {}
        self.processes: list[ManagedProcess] = []

    def register(self) -> None:
        """Leave a note of this supervisor, so that `adloom down` finds it from now on."""
        self._write_record({})

    def start(self, specs: Sequence[ProcessSpec], environment: Mapping[str, str]) -> None:
        for spec in specs:
            process = ManagedProcess(spec, environment)
            self.processes.append(process)
            process.start()
        self._note_pids()

    def tick(self) -> None:
        for process in self.processes:
            message = process.tick()
            if message is not None:
                self._say(message)
        self._note_pids()

    def hopeless(self) -> ManagedProcess | None:
        """A process that cannot stay up, if there is one."""
        return next((process for process in self.processes if process.is_hopeless), None)

    def stop(self, *, should_hurry: Callable[[], bool]) -> None:
        """Ask all to end, wait for a while, then kill; kills at once when `should_hurry()`."""
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + STOP_GRACE_S
        while any(process.pid for process in self.processes):
            if should_hurry() or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        for process in self.processes:
            if process.pid is not None:
                name = process.spec.name
                self._say(f"{name} did not stop in time and was killed; its work goes on later.")
            process.kill()

    def _note_pids(self) -> None:
        pids = {p.spec.name: p.pid for p in self.processes if p.pid is not None}
        if pids != self._pids:
            self._write_record(pids)

    def _write_record(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        Record(
            supervisor=Recorded.of(os.getpid()),
            web_url=self._web_url,
            children={name: Recorded.of(pid) for name, pid in pids.items()},
        ).write(self._folder)


def _outcome(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
