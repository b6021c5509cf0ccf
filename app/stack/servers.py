"""The servers that Adloom brings itself, each replaced by setting its address from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from app.stack.folder import StateFolder
from app.stack.postgres import PostgresServer
from app.stack.valkey import ValkeyServer


class Server(Protocol):
    """What the stack asks of an embedded server."""

    name: str

    @property
    def url(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    def is_up(self) -> bool: ...
    def version(self) -> str | None: ...
    def ensure_running(self) -> bool: ...
    def stop(self, *, immediately: bool = False) -> None: ...


class Servers:
    """The embedded servers of one state folder, in the order in which they start."""

    def __init__(
        self, folder: StateFolder, environ: Mapping[str, str], *, say: Callable[[str], None]
    ) -> None:
        """`environ`: a server whose address stands there already is not brought by us."""
        self._say = say
        self.by_variable: dict[str, Server] = {}
        if not environ.get("DATABASE_URL"):
            self.by_variable["DATABASE_URL"] = PostgresServer(folder, say=say)
        if not environ.get("REDIS_URL"):
            self.by_variable["REDIS_URL"] = ValkeyServer(folder, say=say)

    def ensure_running(self) -> list[Server]:
        """Start or re-attach each; returns those that had to be started."""
        started = []
        for server in self.by_variable.values():
            if server.ensure_running():
                started.append(server)
            else:
                self._say(f"{server.name} was already running (pid {server.pid}): re-attached.")
        return started

    def mend(self) -> None:
        """Start again what has died."""
        for server in self.by_variable.values():
            if server.pid is None:
                self._say(f"{server.name} has stopped unexpectedly; starting it again.")
                server.ensure_running()

    def stop(self, servers: list[Server] | None = None, *, immediately: bool = False) -> None:
        """Stop the given ones (default: all), the last started first."""
        for server in reversed(list(self.by_variable.values())):
            if servers is None or server in servers:
                server.stop(immediately=immediately)
