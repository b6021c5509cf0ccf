"""The embedded servers on real processes: started, re-attached, replaced, and never mixed up."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from app.errors import ConfigurationError
from app.stack.folder import StateFolder
from app.stack.postgres import PostgresServer
from app.stack.valkey import ValkeyServer


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def folder() -> Iterator[StateFolder]:
    # Not below pytest's folder, which every run of pytest closes to other users again.
    root = Path(tempfile.mkdtemp(prefix="adl-", dir="/tmp"))
    folder = StateFolder.create(root / "state")
    yield folder
    for server in (PostgresServer(folder, say=print), ValkeyServer(folder, say=print)):
        server.stop(immediately=True)
    shutil.rmtree(folder.run, ignore_errors=True)
    shutil.rmtree(root)


def kill(pid: int | None) -> None:
    assert pid is not None
    process = psutil.Process(pid)
    process.kill()
    process.wait(10)


def test_postgres_keeps_its_data_over_kill_reattach_and_restart(
    folder: StateFolder, said: list[str]
) -> None:
    first = PostgresServer(folder, say=said.append)
    assert first.ensure_running()
    with psycopg.connect(first.url) as connection:
        connection.execute("CREATE TABLE notes AS SELECT 42 AS answer")
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)

    other = PostgresServer(folder, say=said.append)
    assert other.is_up()
    assert not other.ensure_running(), "a running server is re-attached, not started"
    assert other.pid == first.pid

    kill(other.pid)
    assert not first.is_up()
    assert first.ensure_running()
    with psycopg.connect(first.url) as connection:
        assert connection.execute("SELECT answer FROM notes").fetchone() == (42,)

    first.stop()
    assert first.pid is None
    assert not first.is_up()


def test_a_postgres_whose_data_was_deleted_is_replaced_by_a_fresh_one(
    folder: StateFolder, said: list[str]
) -> None:
    server = PostgresServer(folder, say=said.append)
    server.ensure_running()
    old = psutil.Process(server.pid)
    shutil.rmtree(folder.root)
    fresh = PostgresServer(StateFolder.create(folder.root), say=said.append)
    assert fresh.ensure_running()
    assert fresh.pid != old.pid
    assert any("data or socket is gone" in message for message in said)
    with psycopg.connect(fresh.url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_an_interrupted_first_start_leaves_nothing_half_made(
    folder: StateFolder, said: list[str]
) -> None:
    half_made = folder.root / "postgres.new"
    half_made.mkdir()
    (half_made / "PG_VERSION").write_text("18\n")
    server = PostgresServer(folder, say=said.append)
    assert server.ensure_running()
    assert not half_made.exists()


DAMAGES = (
    ("PG_VERSION", b"17\n", "was written by Postgres 17, and this version of Adloom brings 18"),
    ("PG_VERSION", b"\0\0", "PG_VERSION holds"),
    ("PG_VERSION", None, "PG_VERSION is missing"),
    ("global/pg_control", b"garbage", "its control file cannot be used (could not read file"),
    ("global/pg_control", bytes(8192), "its control file cannot be used (wrong checksum)"),
    ("global/pg_control", None, "its control file cannot be used (could not open file"),
)


def test_a_damaged_database_is_found_before_and_at_a_start_with_the_way_out_and_its_price(
    folder: StateFolder, said: list[str]
) -> None:
    server = PostgresServer(folder, say=said.append)
    server.ensure_running()
    server.stop()
    assert server.find_damage() is None
    for name, content, reason in DAMAGES:
        path = folder.postgres / name
        whole = path.read_bytes()
        path.unlink() if content is None else path.write_bytes(content)
        damage = server.find_damage()
        assert damage is not None
        assert reason in damage.reason
        assert f"mv {folder.postgres} {folder.postgres}.broken" in damage.remedy
        assert "Lost with it are campaigns, people and the records" in damage.remedy
        assert "the finished files in artifacts/ remain" in damage.remedy
        with pytest.raises(ConfigurationError) as caught:
            server.ensure_running()
        assert caught.value.message == f"{damage.reason} {damage.remedy}"
        path.write_bytes(whole)
    assert server.find_damage() is None


def test_moving_a_damaged_database_aside_is_a_way_out(folder: StateFolder, said: list[str]) -> None:
    folder.postgres.mkdir()
    server = PostgresServer(folder, say=said.append)
    with pytest.raises(ConfigurationError, match="Move it aside"):
        server.ensure_running()
    folder.postgres.rename(f"{folder.postgres}.broken")
    assert server.ensure_running()


def test_valkey_loses_no_message_when_it_is_killed(folder: StateFolder, said: list[str]) -> None:
    server = ValkeyServer(folder, say=said.append)
    assert server.ensure_running()
    url = server.url
    with redis.Redis.from_url(url) as client:
        client.rpush("doorbell", *range(1000))
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        client.execute_command("WAITAOF", 1, 0, 5000)
    assert not ValkeyServer(folder, say=said.append).ensure_running()
    kill(server.pid)
    assert server.ensure_running()
    assert server.url == url, "processes that know the address must find it again"
    with redis.Redis.from_url(url) as client:
        assert client.llen("doorbell") == 1000


def test_valkey_refuses_whoever_lacks_the_password(folder: StateFolder, said: list[str]) -> None:
    server = ValkeyServer(folder, say=said.append)
    server.ensure_running()
    port = int((folder.valkey / "port").read_text())
    with redis.Redis(port=port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_valkey_takes_another_port_when_a_stranger_sits_on_its_own(
    tmp_path: Path, folder: StateFolder, said: list[str]
) -> None:
    neighbour_folder = StateFolder.create(tmp_path / "neighbour")
    neighbour = ValkeyServer(neighbour_folder, say=said.append)
    neighbour.ensure_running()
    try:
        taken = (neighbour_folder.valkey / "port").read_text()
        (folder.valkey / "port").write_text(taken)
        server = ValkeyServer(folder, say=said.append)
        assert not server.is_up(), "a neighbour's server is not ours"
        assert server.ensure_running()
        assert (folder.valkey / "port").read_text() != taken
        assert neighbour.is_up()
    finally:
        neighbour.stop()
        shutil.rmtree(neighbour_folder.run)


def test_a_hung_valkey_is_replaced(folder: StateFolder, said: list[str]) -> None:
    server = ValkeyServer(folder, say=said.append)
    server.ensure_running()
    hung = server.pid
    assert hung is not None
    os.kill(hung, signal.SIGSTOP)
    other = ValkeyServer(folder, say=said.append)
    assert other.ensure_running()
    assert other.pid != hung
    assert any("no longer answers" in message for message in said)


def test_a_broken_append_only_file_is_a_sentence_with_the_way_out(
    folder: StateFolder, said: list[str]
) -> None:
    server = ValkeyServer(folder, say=said.append)
    server.ensure_running()
    server.stop()
    log = next((folder.valkey / "appendonlydir").glob("*.incr.aof"))
    log.write_bytes(b"this is no command\r\n" * 20)
    with pytest.raises(ConfigurationError, match=r"Valkey does not start.*Move it aside"):
        server.ensure_running()
