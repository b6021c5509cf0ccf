"""The servers that Adloom brings itself, each replaced by setting its address from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.stack.daemon import Daemon
from app.stack.folder import StateFolder
from app.stack.postgres import PostgresServer
from app.stack.signals import StopRequests
from app.stack.valkey import ValkeyServer


class Servers:
    """The embedded servers of one state folder, in the order in which they start."""

    def __init__(
        self,
        folder: StateFolder,
        environ: Mapping[str, str],
        *,
        say: Callable[[str], None],
        stops: StopRequests | None = None,
    ) -> None:
        """`environ`: a server whose address stands there already is not brought by us."""
        self._say = say
        self.by_variable: dict[str, Daemon] = {}
        # What this object had to start, up or on its way.
        self.started: list[Daemon] = []
        if not environ.get("DATABASE_URL"):
            self.by_variable["DATABASE_URL"] = PostgresServer(folder, say=say, stops=stops)
        if not environ.get("REDIS_URL"):
            self.by_variable["REDIS_URL"] = ValkeyServer(folder, say=say, stops=stops)

    def ensure_running(self) -> None:
        """Start or re-attach each."""
        for server in self.by_variable.values():
            pid = server.pid
            if pid is None:
                # Noted before, so that a start that is broken off is cleared up as well.
                self.started.append(server)
            if not server.ensure_running():
                self._say(f"{server.name} was already running (pid {pid}): re-attached.")
            elif pid is not None:
                self.started.append(server)

    def mend(self) -> None:
        """Start again what has died."""
        for server in self.by_variable.values():
            if server.pid is None:
                self._say(f"{server.name} has stopped unexpectedly; starting it again.")
                server.ensure_running()

    def stop(self, servers: list[Daemon] | None = None, *, immediately: bool = False) -> None:
        """Stop the given ones (default: all), the last started first."""
        for server in reversed(list(self.by_variable.values())):
            if servers is None or server in servers:
                server.stop(immediately=immediately)
