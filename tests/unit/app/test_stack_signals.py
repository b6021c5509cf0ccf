"""Ctrl-C: counted, looked at by whoever waits, and never in the way of the orderly end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from app.stack import folder as folder_module
from app.stack.folder import StateFolder
from app.stack.processes import end, run_watched
from app.stack.signals import INTERRUPTED_EXIT, StopRequested, StopRequests

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(600)"
)


def test_a_signal_interrupts_nothing_and_is_seen_at_the_next_look() -> None:
    stops = StopRequests()
    taken = threading.Lock()
    with stops.listening():
        stops.check()
        with taken:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        assert not taken.locked()
        assert not stops.should_hurry()
        with pytest.raises(StopRequested):
            stops.check()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        assert stops.should_hurry()


def test_the_first_request_says_what_is_waited_for_and_that_it_goes_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with StopRequests().listening():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    told = capfd.readouterr().err
    assert "waiting some seconds for the denoising step in hand" in told
    assert "goes on from there at the next start" in told


def test_the_handlers_from_before_are_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopRequests().listening():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_in_the_midst_of_a_poll_leaves_the_process_free_to_be_awaited() -> None:
    # Thousands of interrupts, most of them while `poll` holds its lock.
    script = (
        "import os, signal, subprocess, sys, threading, time\n"
        "from app.stack import signals\n"
        "signals.MESSAGES = (b'',) * 100_000\n"
        "stops = signals.StopRequests()\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "def interrupt():\n"
        "    for _ in range(2000):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.0002)\n"
        "with stops.listening():\n"
        "    thread = threading.Thread(target=interrupt)\n"
        "    thread.start()\n"
        "    while thread.is_alive():\n"
        "        child.poll()\n"
        "    child.kill()\n"
        "    child.wait(timeout=10)\n"
        "print('ended', stops.count > 100)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "ended True\n", done.stderr


def test_the_third_request_ends_the_process_whatever_it_does() -> None:
    script = (
        "import time\n"
        "from app.stack.signals import StopRequests\n"
        "with StopRequests().listening():\n"
        "    print('up', flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            assert process.stderr.readline() == "\n"
            assert "once more" in process.stderr.readline()
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == INTERRUPTED_EXIT


def test_a_program_that_is_watched_is_killed_when_the_end_is_asked_for() -> None:
    stops = StopRequests()
    stops.count = 1
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    before = time.monotonic()
    with pytest.raises(StopRequested):
        run_watched(command, check=stops.check)
    assert time.monotonic() - before < 5
    assert [
        child.pid for child in psutil.Process().children() if "sleep(600)" in _line(child)
    ] == []


def test_a_program_that_is_watched_gives_its_output() -> None:
    command = [sys.executable, "-c", "import sys; print('out'); sys.exit('err')"]
    done = run_watched(command, check=lambda: None)
    assert (done.returncode, done.stdout, done.stderr) == (1, "out\n", "err\n")


def test_what_ignores_a_request_is_killed_and_that_is_told() -> None:
    said: list[str] = []
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = psutil.Process(process.pid)
        assert end(found, signal.SIGTERM, signal.SIGKILL, wait_s=0.3, say=said.append)
    assert said == [f"pid {process.pid} has not ended yet; sending it SIGKILL."]


def test_waiting_for_a_lock_ends_when_the_end_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "RUN_ROOT", tmp_path)
    folder = StateFolder.create(tmp_path / "state")
    stops = StopRequests()
    stops.count = 1
    with folder.lock("postgres"), pytest.raises(StopRequested):
        folder.lock("postgres", check=stops.check).__enter__()


def _line(process: psutil.Process) -> str:
    return " ".join(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else ""
