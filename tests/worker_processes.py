"""Celery worker processes for tests, started and ended as a supervisor would."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from app.config import Config
from app.paths import ROOT

START_TIMEOUT_S = 30.0


@dataclass
class WorkerProcess:
    """One `celery worker` in a session of its own; its output goes to `log`."""

    popen: subprocess.Popen[bytes]
    log: Path

    def wait_for_line(self, text: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while text not in self.output():
            assert self.popen.poll() is None, self.output()
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.output()}"
            time.sleep(0.05)

    def output(self) -> str:
        return self.log.read_text()

    def terminate(self) -> float:
        """SIGTERM, as at a deployment; returns the seconds until it was gone."""
        start = time.monotonic()
        self.popen.terminate()
        self.popen.wait(20)
        return time.monotonic() - start

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(20)


@dataclass
class WorkerProcesses:
    """Starts workers with these settings and, in the end, kills those that still run."""

    config: Config
    folder: Path
    app: str = "tests.null_worker"
    environment: dict[str, str] = field(default_factory=dict)
    started: list[WorkerProcess] = field(default_factory=list)

    def start(self, *queues: str, **environment: str) -> WorkerProcess:
        name = f"worker-{len(self.started)}"
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-m", "celery", "--app", self.app, "worker", "--pool", "threads"]
        command += ["--concurrency", "1", "--queues", ",".join(queues), "--hostname", f"{name}@%h"]
        command += ["--without-gossip", "--without-mingle", "--loglevel", "INFO"]
        with log.open("wb") as output:
            popen = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self._environment() | self.environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = WorkerProcess(popen, log)
        self.started.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        return {
            **environment_of(self.config),
            "TEST_POLL_S": "0.2",
            "TEST_STEP_S": "0",
            "TEST_LOAD_S": "0",
            "TEST_RENDER_LOG": str(self.folder / "renders.log"),
        }

    def renders(self) -> list[str]:
        """Ids of the jobs that were rendered to their end, one for each render."""
        log = self.folder / "renders.log"
        return [line.split()[1] for line in log.read_text().splitlines()] if log.exists() else []


def environment_of(config: Config) -> dict[str, str]:
    """The environment in which a process of the application has these settings."""
    return {
        **os.environ,
        "DATABASE_URL": config.database_url,
        "DATABASE_APP_URL": config.database_app_url,
        "DATABASE_SYSTEM_URL": config.database_system_url,
        "REDIS_URL": config.redis_url,
        "STORAGE_URL": config.storage_url,
        "ADLOOM_SECRET_KEY": config.secret_key,
        "ADLOOM_LEASE_S": str(config.workers.lease_s),
    }


@contextlib.contextmanager
def worker_processes(config: Config, folder: Path) -> Iterator[WorkerProcesses]:
    processes = WorkerProcesses(config, folder)
    try:
        yield processes
    finally:
        for process in processes.started:
            process.kill()


def wait_until(condition: Callable[[], bool], *, timeout_s: float = START_TIMEOUT_S) -> float:
    """Seconds until the condition held; AssertionError when it did not in time."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < timeout_s, "it did not happen in time"
        time.sleep(0.02)
    return time.monotonic() - start
