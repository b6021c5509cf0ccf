"""The `adloom` command: one sentence for what a person can mend, and the whole stack for real."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import av
import psutil
import pytest
from click.testing import CliRunner
from PIL import Image

from app.cli.main import main
from app.paths import EXAMPLES
from app.stack import stack as stack_module
from app.stack.folder import StateFolder
from app.stack.processes import wait_gone
from app.stack.record import running
from app.stack.servers import Servers
from app.stack.signals import INTERRUPTED_EXIT
from app.stack.supervisor import STOP_GRACE_S
from tests.checkpoints import random_model_dir
from tests.command_line import START_TIMEOUT_S, Command, assert_sentence, wait_for


def test_a_port_in_use_is_named_before_anything_starts(adloom: Command) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", adloom.port))
        holder.listen()
        result = adloom.run("up")
    assert_sentence(result, f"Port {adloom.port} is already in use", "adloom up --port")
    assert not (adloom.state_dir / "postgres").exists()


def test_a_worker_without_servers_says_how_to_start_them(adloom: Command) -> None:
    assert_sentence(adloom.run("worker"), "Postgres is not running", "adloom up")


def test_a_wrong_setting_is_named(adloom: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://somewhere/adloom")
    monkeypatch.setenv("REDIS_URL", "redis://somewhere:6379/0")
    assert_sentence(adloom.run("web"), "DATABASE_URL names 'mysql'")


def test_down_with_nothing_running_says_so(adloom: Command) -> None:
    result = adloom.run("down")
    assert (result.exit_code, result.output) == (0, "Nothing was running.\n")


def test_a_workspace_is_made_by_script(adloom: Command) -> None:
    options = ("--name", "Northwind", "--owner-name", "Ada", "--email", "ada@example.com")
    arguments = ("create-workspace", *options, "--password", "correct horse battery")
    assert adloom.run("migrate").exit_code == 0
    assert "ada@example.com can sign in" in adloom.run(*arguments).output
    assert_sentence(adloom.run(*arguments), "There is an account for ada@example.com already")
    # What cannot become an account is refused before anybody types a password.
    for email, part in (("ada@example.com", "an account for"), ("ada", "is not an email address")):
        asked = adloom.run("create-workspace", *options[:-1], email)
        assert_sentence(asked, part)
        assert "Password" not in asked.output


def test_the_version_is_told_both_ways(adloom: Command) -> None:
    told = [CliRunner().invoke(main, [word]).output for word in ("--version", "version")]
    assert told[0] == told[1]
    assert told[0].startswith("adloom ")


def test_the_whole_stack_starts_answers_and_leaves_nothing_behind(
    adloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(random_model_dir()))
    log = tmp_path / "up.log"
    up = adloom.start("up", log=log)
    wait_for(lambda: "Adloom is ready" in log.read_text(), up, log)
    assert "adloom create-workspace" in log.read_text()
    connection = http.client.HTTPConnection("127.0.0.1", adloom.port, timeout=10)
    connection.request("GET", "/")
    assert connection.getresponse().status in (200, 302)
    doctor = adloom.run("doctor")
    assert doctor.exit_code == 0, doctor.output
    assert_sentence(adloom.run("up"), "already runs", "adloom down")

    everything = psutil.Process(up.pid).children(recursive=True)
    assert len(everything) >= 6  # web and its child, control, render, Postgres, Valkey
    up.kill()
    up.wait()
    assert adloom.run("doctor").exit_code == 1, "orphans are found"
    down = adloom.run("down")
    assert down.exit_code == 0, down.output
    assert "left over" in down.output
    assert [process for process in everything if not wait_gone(process, 2)] == []


def test_ctrl_c_stops_everything_within_seconds_whatever_connections_are_open(
    adloom: Command, tmp_path: Path
) -> None:
    log = tmp_path / "up.log"
    up = adloom.start("up", log=log)
    wait_for(lambda: "Adloom is ready" in log.read_text(), up, log)
    everything = psutil.Process(up.pid).children(recursive=True)
    with ExitStack() as connections:
        address = ("127.0.0.1", adloom.port)
        # Browsers open some without a request, keep others, and leave some in the midst of one.
        for sent in (b"", b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n", b"POST /login HT"):
            connection = connections.enter_context(socket.create_connection(address))
            connection.sendall(sent)
        before = time.monotonic()
        up.send_signal(signal.SIGINT)
        assert up.wait(timeout=60) == 0
        seconds = time.monotonic() - before
    assert [process for process in everything if not wait_gone(process, 2)] == []
    assert "killed" not in log.read_text()
    assert seconds < 2 * STOP_GRACE_S, log.read_text()


@pytest.mark.parametrize("delay_s", [0.0, 2.0])
def test_ctrl_c_during_the_start_leaves_nothing_behind(
    adloom: Command, tmp_path: Path, delay_s: float
) -> None:
    log = tmp_path / "demo.log"
    demo = adloom.start("demo", log=log)
    wait_for(lambda: "Starting Postgres" in log.read_text(), demo, log)
    time.sleep(delay_s)
    demo.send_signal(signal.SIGINT)
    assert demo.wait(timeout=60) == INTERRUPTED_EXIT, log.read_text()
    assert "the same command goes on from here" in log.read_text()
    assert "Traceback" not in log.read_text()
    servers = Servers(StateFolder.create(adloom.state_dir), {}, say=print)
    assert [server.pid for server in servers.by_variable.values()] == [None, None]


def test_down_ends_even_a_supervisor_that_does_not_react(
    adloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_module, "DOWN_PATIENCE_S", 0.5)
    log = tmp_path / "up.log"
    up = adloom.start("up", log=log)
    wait_for(lambda: "Adloom is ready" in log.read_text(), up, log)
    everything = psutil.Process(up.pid).children(recursive=True)
    up.send_signal(signal.SIGSTOP)
    down = adloom.run("down")
    assert up.wait(timeout=10) == -signal.SIGKILL
    for part in ("sending it SIGTERM", "sending it SIGKILL", "left over", "Everything has stopped"):
        assert part in down.output
    assert [process for process in everything if not wait_gone(process, 2)] == []


def test_the_demo_renders_survives_a_killed_worker_and_reuses_what_is_finished(
    adloom: Command, tmp_path: Path
) -> None:
    log = tmp_path / "demo.log"
    demo = adloom.start("demo", "--rows", "4", log=log)
    artifacts = adloom.state_dir / "artifacts"
    wait_for(lambda: len([*artifacts.rglob("*.mp4")]) >= 1, demo, log)
    record = running(StateFolder(adloom.state_dir.resolve()))
    assert record is not None
    os.kill(record.children["render"].pid, signal.SIGKILL)
    assert demo.wait(timeout=START_TIMEOUT_S) == 0, log.read_text()
    assert cells(log) == ["4", "4", "0", "0"], log.read_text()
    assert "kept with each video: market\n" in log.read_text()
    check_files(adloom.state_dir / "demo", count=4)

    again = adloom.start("demo", "--rows", "4", "--keep", log=log)
    assert again.wait(timeout=START_TIMEOUT_S) == 0, log.read_text()
    assert cells(log) == ["4", "0", "4", "0"]
    assert "4 of 4 were rendered before and reused" in log.read_text()
    servers = Servers(StateFolder.create(adloom.state_dir), {}, say=print)
    assert all(server.is_up() for server in servers.by_variable.values()), "--keep keeps them"


def test_the_demo_comes_with_the_table_that_it_names() -> None:
    assert (EXAMPLES / "sneaker_cities.csv").is_file()


def check_files(folder: Path, *, count: int) -> None:
    videos = sorted(folder.glob("*.mp4"))
    assert len(videos) == count
    for path in videos:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            assert stream.codec_context.name == "h264"
            assert (stream.width, stream.height) == (224, 128)
            assert sum(1 for _ in container.decode(stream)) == 17
    with Image.open(folder / "contact_sheet.png") as sheet:
        assert sheet.width > 4 * 224


def cells(log: Path) -> list[str]:
    """Variants, rendered, reused and failed, from the table of the summary."""
    row = next(line for line in log.read_text().splitlines() if line.startswith("│"))
    return [cell.strip() for cell in row.strip("│").split("│")][:4]
