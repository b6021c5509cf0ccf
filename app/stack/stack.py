"""The whole of Adloom on one machine: servers, schema, workers and web, started and stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum

from app.config import Config
from app.errors import AppError, Conflict
from app.services import schema
from app.stack.commands import WorkerRole, web_command, worker_command
from app.stack.daemon import Daemon
from app.stack.environment import Address, compose
from app.stack.folder import StateFolder
from app.stack.ports import require_free
from app.stack.processes import end
from app.stack.record import LOCK, end_orphans, forget, running
from app.stack.servers import Servers
from app.stack.signals import StopRequests
from app.stack.supervisor import ProcessSpec, Supervisor

SERVER_CHECK_S = 2.0
# Longer than a supervisor needs to stop its processes in good order, and then its servers.
DOWN_PATIENCE_S = 25.0


class ServersAtEnd(StrEnum):
    """What happens to the embedded servers when the stack ends."""

    STOP = "stop"
    STOP_STARTED = "stop_started"  # those found running stay up
    KEEP = "keep"


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """What to start and where."""

    folder: StateFolder
    environ: Mapping[str, str]
    address: Address
    with_web: bool = True
    servers_at_end: ServersAtEnd = ServersAtEnd.STOP


class Stack:
    """Started by `open_stack`; `tick` keeps it alive."""

    def __init__(
        self, options: StackOptions, *, say: Callable[[str], None], stops: StopRequests
    ) -> None:
        self._options = options
        self._say = say
        self._stops = stops
        self._next_check = 0.0
        self.servers = Servers(options.folder, options.environ, say=say, stops=stops)
        self.supervisor = Supervisor(
            options.folder, web_url=options.address.url if options.with_web else None, say=say
        )

    def start_servers(self) -> Config:
        """Servers up, schema current; returns the configuration that leads to them."""
        self.servers.ensure_running()
        config = Config.from_environment(self.environment())
        schema.upgrade(config)
        self._stops.check()
        return config

    def start_processes(self) -> None:
        options = self._options
        name = f"{os.getpid()}"
        roles = [WorkerRole.CONTROL, WorkerRole.RENDER]
        commands = {role.value: worker_command(role, name=name) for role in roles}
        if options.with_web:
            commands = {
                "web": web_command(options.address, access_log=str(options.folder.log("access"))),
                **commands,
            }
        specs = [
            ProcessSpec(name=name, command=command, log=options.folder.log(name))
            for name, command in commands.items()
        ]
        self.supervisor.start(specs, self.environment())

    def environment(self) -> dict[str, str]:
        options = self._options
        return compose(
            options.environ, folder=options.folder, servers=self.servers, address=options.address
        )

    def tick(self) -> None:
        """Restart what has died: processes at once, servers within two seconds.

        StopRequested once somebody asked for the end.
        """
        self._stops.check()
        self.supervisor.tick()
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + SERVER_CHECK_S
            try:
                self.servers.mend()
            except AppError as error:
                self._say(error.message)

    def stop(self) -> None:
        self.supervisor.stop(should_hurry=self._stops.should_hurry)
        chosen: dict[ServersAtEnd, list[Daemon] | None] = {
            ServersAtEnd.STOP: None,
            ServersAtEnd.STOP_STARTED: self.servers.started,
            ServersAtEnd.KEEP: [],
        }
        at_end = chosen[self._options.servers_at_end]
        self.servers.stop(at_end, immediately=self._stops.should_hurry())


@contextmanager
def open_stack(
    options: StackOptions, *, say: Callable[[str], None], stops: StopRequests
) -> Iterator[tuple[Stack, Config]]:
    """Start everything, hand it out, and stop it however the block ends: at the latest when a
    wait in it raises StopRequested.

    Conflict when another supervisor runs in this folder; nothing is started when the port is
    taken.
    """
    folder = options.folder
    with ExitStack() as cleanup:
        try:
            cleanup.enter_context(folder.lock(LOCK, wait=False))
        except Conflict:
            raise Conflict(_already_running(folder)) from None
        end_orphans(folder, say)
        if options.with_web:
            require_free(options.address)
        stack = Stack(options, say=say, stops=stops)
        stack.supervisor.register()
        cleanup.callback(lambda: forget(folder))
        cleanup.callback(stack.stop)
        config = stack.start_servers()
        stack.start_processes()
        yield stack, config


def stop_everything(folder: StateFolder, *, say: Callable[[str], None]) -> bool:
    """End the supervisor of this folder, orphans and embedded servers; whether any ran."""
    found = False
    record = running(folder)
    process = record.supervisor.find() if record is not None else None
    if process is not None:
        found = True
        say(f"Stopping Adloom (pid {process.pid}) …")
        # A second request makes it kill its processes at once.
        requests = (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL)
        if not end(process, *requests, wait_s=DOWN_PATIENCE_S, say=say):
            say(f"pid {process.pid} does not end, not even killed: the system holds it.")
    if end_orphans(folder, say):
        found = True
    servers = Servers(folder, {}, say=say)
    for server in servers.by_variable.values():
        if server.pid is not None:
            found = True
            say(f"Stopping {server.name} (pid {server.pid}) …")
            server.stop()
    return found


def _already_running(folder: StateFolder) -> str:
    record = running(folder)
    where = f" at {record.web_url}" if record is not None and record.web_url else ""
    pid = f" (pid {record.supervisor.pid})" if record is not None else ""
    return (
        f"Adloom already runs from {folder.root}{where}{pid}. Stop it with `adloom down`, or "
        "start a second one with another --state-dir and --port."
    )
