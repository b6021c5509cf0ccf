"""What every command shares: where the state lies, where the web listens, how to reach both."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from app.errors import ServiceUnavailable
from app.paths import DEFAULT_STATE_DIR
from app.stack.environment import Address, compose
from app.stack.folder import StateFolder
from app.stack.losses import find_lost_database
from app.stack.program import command
from app.stack.servers import Servers

# With these set, a process needs nothing from the state folder.
DEPLOYED_VARIABLES = ("DATABASE_URL", "REDIS_URL", "STORAGE_URL", "ADLOOM_SECRET_KEY")


def say(message: str) -> None:
    """Tell the person at the terminal, apart from the command's own output."""
    click.secho(message, dim=True, err=True)


def warn_of_losses(folder: StateFolder, environ: Mapping[str, str]) -> None:
    """Say so, and not in passing, when what is started begins without the records of before."""
    lost = None if environ.get("DATABASE_URL") else find_lost_database(folder)
    if lost is not None:
        click.secho(f"\nWarning: {lost.reason}", fg="yellow", bold=True, err=True)
        click.secho(f"{lost.remedy}\n", fg="yellow", err=True)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The shared options; `environ` is handed on to `Config`, which alone reads it."""

    state_dir: Path
    address: Address
    environ: Mapping[str, str]

    def folder(self) -> StateFolder:
        return StateFolder.create(self.state_dir)

    @property
    def is_deployed(self) -> bool:
        """Whether nothing is needed from the state folder."""
        return all(self.environ.get(name) for name in DEPLOYED_VARIABLES)

    def connected_environment(self, *, start: bool = False) -> dict[str, str]:
        """The environment of a process that joins a running stack or an outside deployment.

        Embedded servers that are down are started if `start`, else ServiceUnavailable.
        """
        if self.is_deployed:
            return dict(self.environ)
        folder = self.folder()
        servers = Servers(folder, self.environ, say=say)
        if start:
            warn_of_losses(folder, self.environ)
        for variable, server in servers.by_variable.items():
            if start:
                server.ensure_running()
            elif not server.is_up():
                raise ServiceUnavailable(
                    f"{server.name} is not running. Start everything with "
                    f"`{command('up', state_dir=folder.root)}`, or set "
                    f"{variable} to a server of your own."
                )
        return compose(self.environ, folder=folder, servers=servers, address=self.address)


class WholeNumber(click.IntRange):
    """A whole number within bounds, refused in plain words."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            bounds = f"from {self.min} on" if self.max is None else f"from {self.min} to {self.max}"
            self.fail(f"give a whole number {bounds}, not {str(value)[:40]!r}.", param, ctx)


SHARED_OPTIONS = (
    click.option(
        "--state-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="ADLOOM_STATE_DIR",
        default=DEFAULT_STATE_DIR,
        show_default=True,
        help="Folder of the database, the finished files, secrets and logs.",
    ),
    click.option(
        "--host",
        envvar="ADLOOM_HOST",
        default="127.0.0.1",
        show_default=True,
        help="Address that the dashboard listens on.",
    ),
    click.option(
        "--port",
        type=WholeNumber(1, 65535),
        envvar="ADLOOM_PORT",
        default=8000,
        show_default=True,
        help="Port that the dashboard listens on.",
    ),
)


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --state-dir, --host and --port; the command receives them as `settings`."""

    @wraps(command)
    def wrapped(state_dir: Path, host: str, port: int, **options: Any) -> Any:
        settings = Settings(
            state_dir=state_dir, address=Address(host=host, port=port), environ=os.environ
        )
        return command(settings=settings, **options)

    decorated: Callable[..., Any] = wrapped
    for option in reversed(SHARED_OPTIONS):
        decorated = option(decorated)
    return decorated
