"""The `adloom` command in tests: on a state folder and a port of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner, Result

from app.cli.main import main
from app.paths import ROOT
from tests.checkpoints import random_model_dir

START_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Command:
    """Runs `adloom` on one state folder: in this process, or as a process of its own."""

    state_dir: Path
    port: int

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, *self._shared()])

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        program = Path(sys.executable).with_name("adloom")
        environment = os.environ | {
            "ADLOOM_MODEL_DIR": str(random_model_dir()),
            # A killed worker's jobs are free again soon.
            "ADLOOM_LEASE_S": "3",
            "OMP_NUM_THREADS": "1",
        }
        with log.open("wb") as output:
            return subprocess.Popen(
                [program, *arguments, *self._shared()],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _shared(self) -> list[str]:
        return ["--state-dir", str(self.state_dir), "--port", str(self.port)]


def assert_sentence(result: Result, *parts: str) -> None:
    """The command failed with a message that holds the parts, and without a traceback."""
    assert result.exit_code == 2, result.output
    for part in parts:
        assert part in result.output
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
