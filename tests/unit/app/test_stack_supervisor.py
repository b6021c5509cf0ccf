"""Supervised processes: restarted when they crash, stopped in order, found when orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from app.stack import folder as folder_module
from app.stack import supervisor as supervisor_module
from app.stack.folder import StateFolder
from app.stack.record import Record, Recorded, end_orphans, running
from app.stack.supervisor import ProcessSpec, Supervisor

Start = Callable[[str], Supervisor]

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(600)"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setattr(folder_module, "RUN_ROOT", tmp_path)
    return StateFolder.create(tmp_path / "state")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervise(folder: StateFolder, said: list[str]) -> Iterator[Start]:
    started: list[Supervisor] = []

    def start(script: str) -> Supervisor:
        supervisor = Supervisor(folder, web_url=None, say=said.append)
        command = [sys.executable, "-c", script]
        spec = ProcessSpec(name="worker", command=command, log=folder.log("worker"))
        started.append(supervisor)
        supervisor.start([spec], os.environ)
        return supervisor

    yield start
    for supervisor in started:
        supervisor.stop(should_hurry=lambda: True)


def until(condition: Callable[[], object], *, tick: Callable[[], None] = lambda: None) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited for 10 s"
        tick()
        time.sleep(0.02)


def has_printed(folder: StateFolder) -> bool:
    return "up" in folder.log("worker").read_text()


def test_a_crashed_process_is_started_again_after_a_pause(
    supervise: Start, folder: StateFolder, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "BACKOFF_S", (0.3,))
    supervisor = supervise(SLEEPER)
    process = supervisor.processes[0]
    first = process.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: process.pid is None)
    supervisor.tick()
    supervisor.tick()
    assert process.pid is None, "no pause before the restart"
    until(lambda: process.pid not in (None, first), tick=supervisor.tick)
    assert said == [
        "worker ended with signal SIGKILL; starting it again in 0 s. Its log: "
        f"{folder.log('worker')}"
    ]


def test_the_pause_grows_while_a_process_keeps_crashing(
    supervise: Start, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "BACKOFF_S", (0.01, 0.02, 5.0))
    supervisor = supervise("raise SystemExit(3)")
    until(lambda: supervisor.hopeless(), tick=supervisor.tick)
    assert len(said) == 3
    assert "exit code 3; starting it again in 5 s" in said[2]


def test_stopping_ends_a_process_and_what_it_started(supervise: Start, folder: StateFolder) -> None:
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}])"
    supervisor = supervise(f"{child}; {SLEEPER}")
    until(lambda: folder.log("worker").read_text().count("up") == 2)
    grandchildren = psutil.Process(supervisor.processes[0].pid).children()
    assert len(grandchildren) == 1
    supervisor.stop(should_hurry=lambda: False)
    until(lambda: not grandchildren[0].is_running())
    assert supervisor.processes[0].pid is None


def test_a_process_that_ignores_the_request_is_killed_when_hurried(
    supervise: Start, folder: StateFolder, said: list[str]
) -> None:
    supervisor = supervise(STUBBORN)
    until(lambda: has_printed(folder))
    before = time.monotonic()
    supervisor.stop(should_hurry=lambda: True)
    assert time.monotonic() - before < 2
    assert len(said) == 1
    assert "worker did not stop in time and was killed" in said[0]


def test_a_stubborn_process_is_killed_after_the_grace_period(
    supervise: Start, folder: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_GRACE_S", 0.5)
    supervisor = supervise(STUBBORN)
    until(lambda: has_printed(folder))
    supervisor.stop(should_hurry=lambda: False)
    assert supervisor.processes[0].pid is None


def test_new_lines_of_the_log_are_followed(supervise: Start, folder: StateFolder) -> None:
    folder.log("worker").write_text("from an earlier run\n")
    supervisor = supervise("print('one'); print('two', flush=True); import time; time.sleep(600)")
    lines: list[str] = []
    until(lambda: len(lines) >= 2, tick=lambda: lines.extend(_tail(supervisor)))
    assert lines == ["one", "two"]


def _tail(supervisor: Supervisor) -> list[str]:
    return supervisor.processes[0].tail.new_lines()


def test_orphans_of_a_killed_supervisor_are_found_and_stopped(
    folder: StateFolder, said: list[str]
) -> None:
    orphan = subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    supervisor = Recorded.of(gone.pid)
    gone.wait()
    children = {"render": Recorded.of(orphan.pid)}
    Record(supervisor=supervisor, web_url=None, children=children).write(folder)
    assert running(folder) is None
    assert end_orphans(folder, said.append) == 1
    assert orphan.wait(timeout=5) == -signal.SIGTERM
    assert end_orphans(folder, said.append) == 0


def test_a_recycled_process_id_is_never_taken_for_an_orphan(
    folder: StateFolder, said: list[str]
) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", SLEEPER])
    try:
        before = Recorded(bystander.pid, Recorded.of(bystander.pid).created_at - 100)
        Record(supervisor=before, web_url=None, children={"render": before}).write(folder)
        assert end_orphans(folder, said.append) == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_stopping_ends_even_if_an_interrupt_left_the_lock_of_a_process_taken(
    supervise: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_GRACE_S", 0.2)
    monkeypatch.setattr(supervisor_module, "KILL_WAIT_S", 0.2)
    supervisor = supervise(SLEEPER)
    [managed] = supervisor.processes
    process = managed._process
    assert process is not None
    # What a KeyboardInterrupt between the acquire and the release in Popen.poll leaves behind.
    with process._waitpid_lock:
        supervisor.stop(should_hurry=lambda: False)
    assert process.wait(timeout=10) != 0
