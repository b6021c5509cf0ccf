"""What the embedded servers have in common: launched apart from us, awaited, found and ended."""

from __future__ import annotations

import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psutil

from app.stack.folder import Damage, StateFolder
from app.stack.processes import end
from app.stack.signals import StopRequests

POLL_S = 0.05
STOP_WAIT_S = 10.0


class Daemon(ABC):
    """A server that outlives the command that started it, and that any later command finds."""

    name: ClassVar[str]
    # From the gentlest to the last resort.
    stop_signals: ClassVar[Sequence[signal.Signals]]

    def __init__(
        self,
        folder: StateFolder,
        *,
        say: Callable[[str], None],
        stops: StopRequests | None = None,
    ) -> None:
        """`stops` ends the waiting for a start with StopRequested, and hurries a stop."""
        self._folder = folder
        self._say = say
        self._stops = stops or StopRequests()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Its address, as the processes that use it are told."""

    @property
    def pid(self) -> int | None:
        process = self._find()
        return None if process is None else process.pid

    @abstractmethod
    def is_up(self) -> bool:
        """Whether it answers, and is ours."""

    @abstractmethod
    def version(self) -> str | None:
        """Of the one that runs, or would be started."""

    @abstractmethod
    def ensure_running(self) -> bool:
        """Start it unless it runs; whether it had to be started."""

    @abstractmethod
    def find_damage(self) -> Damage | None:
        """What keeps the data of a stopped server from being used; None when all looks well."""

    def stop(self, *, immediately: bool = False) -> None:
        """End it in good order, or without that (`immediately`); what it lacks is made up later."""
        process = self._find() or self._launched()
        if process is not None:
            signals = self.stop_signals[1:] if immediately else self.stop_signals
            hurry = self._stops.should_hurry
            end(process, *signals, wait_s=STOP_WAIT_S, should_hurry=hurry, say=self._say)
        if self._process is not None:
            self._process.poll()
            self._process = None

    @abstractmethod
    def _find(self) -> psutil.Process | None:
        """The live server of this state folder, whoever started it."""

    def _launched(self) -> psutil.Process | None:
        """The one that we started, though it has left no note of itself yet."""
        if self._process is None or self._process.poll() is not None:
            return None
        return psutil.Process(self._process.pid)

    def _spawn(self, command: Sequence[str], *, cwd: Path, **options: Any) -> int:
        """Launch it; where in its log the messages of this start begin."""
        with self._log.open("ab") as output:
            offset = output.tell()
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **options,
            )
        return offset

    def _wait_until_up(self, timeout_s: float) -> bool:
        """Whether it came up; False when it ended instead, or took longer."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._stops.check()
            if self.is_up():
                return True
            if self._find() is None and self._launched() is None:
                return False
            time.sleep(POLL_S)
        return False

    def _end_stranger(self, what_is_wrong: str) -> None:
        process = self._find()
        if process is not None:
            self._say(f"Stopped a {self.name} (pid {process.pid}) {what_is_wrong}.")
            end(process, *self.stop_signals[1:], wait_s=STOP_WAIT_S)

    @property
    def _log(self) -> Path:
        return self._folder.log(self.name.lower())

    def _said_since(self, offset: int) -> str:
        with self._log.open(errors="replace") as lines:
            lines.seek(offset)
            return lines.read()
