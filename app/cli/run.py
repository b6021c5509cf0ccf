"""Commands that run Adloom: the whole stack in one terminal, or one process of it."""

from __future__ import annotations

import http.client
import os
import time
import urllib.parse
import webbrowser
from collections.abc import Callable
from functools import partial

import click

from app.cli.demo_login import find_login
from app.cli.options import Settings, say, shared_options, warn_of_losses
from app.config import Config
from app.db import Database
from app.services import workspaces
from app.stack.commands import WorkerRole, web_command, worker_command
from app.stack.environment import Address
from app.stack.folder import StateFolder
from app.stack.signals import StopRequested, StopRequests
from app.stack.stack import Stack, StackOptions, open_stack, stop_everything

TICK_S = 0.2
READY_PATH = "/readyz"
COLOURS = {"web": "cyan", "control": "magenta", "render": "green"}


@click.command()
@click.option("--open", "open_path", help="Open this page of the dashboard in a browser.")
@shared_options
def up(settings: Settings, open_path: str | None) -> None:
    """Start everything on this machine; Ctrl-C stops it all."""
    stops = StopRequests()
    options = StackOptions(
        folder=settings.folder(), environ=settings.environ, address=settings.address
    )
    warn_of_losses(options.folder, settings.environ)
    try:
        with (
            stops.listening(),
            open_stack(options, say=say, stops=stops) as (stack, config),
        ):
            url = urllib.parse.urljoin(config.base_url + "/", (open_path or "").lstrip("/"))
            hint = sign_in_hint(config, options.folder)
            announce = partial(_announce, url, hint, in_browser=open_path is not None)
            _supervise(stack, settings.address, announce)
    except StopRequested:
        say("Stopped. Batches that were running go on at the next start.")


@click.command()
@shared_options
def down(settings: Settings) -> None:
    """Stop everything that runs from this state folder, orphans included."""
    # Servers may have outlived their state folder, which is not made anew to stop them.
    found = stop_everything(StateFolder.at(settings.state_dir), say=say)
    say("Everything has stopped." if found else "Nothing was running.")


@click.command()
@click.option("--workers", default=1, show_default=True, help="Number of web processes.")
@shared_options
def web(settings: Settings, workers: int) -> None:
    """Run the web server alone, in place of this process."""
    _replace_process(
        web_command(settings.address, workers=workers), settings.connected_environment()
    )


@click.command()
@click.option(
    "--role",
    type=click.Choice([role.value for role in WorkerRole]),
    default=WorkerRole.RENDER.value,
    show_default=True,
)
@click.option("--name", help="Tells workers of one host apart; default: the process id.")
@shared_options
def worker(settings: Settings, role: str, name: str | None) -> None:
    """Run one more worker, in place of this process."""
    command = worker_command(WorkerRole(role), name=name or str(os.getpid()))
    _replace_process(command, settings.connected_environment())


def _replace_process(command: list[str], environment: dict[str, str]) -> None:
    Config.from_environment(environment)  # a wrong setting is named here, not in a traceback
    os.execvpe(command[0], command, environment)  # noqa: S606


def _supervise(stack: Stack, address: Address, announce: Callable[[], None]) -> None:
    is_ready = False
    while True:
        stack.tick()
        _echo_logs(stack)
        if not is_ready and _answers(address):
            is_ready = True
            announce()
        time.sleep(TICK_S)


def sign_in_hint(config: Config, folder: StateFolder) -> str:
    """How to get in, where that is known: the demo's sign-in, or how to make the first one."""
    database = Database(config)
    try:
        with database.system_scope() as session:
            if not workspaces.has_any_workspace(session):
                return "Set up your workspace there, or here with `adloom create-workspace`."
            login = find_login(session, folder)
    finally:
        database.dispose()
    return f"Sign in to the demo: {login}" if login is not None else ""


def _announce(url: str, hint: str, *, in_browser: bool) -> None:
    click.secho(f"\n  Adloom is ready: {url}", fg="green", bold=True)
    if hint:
        click.echo(f"  {hint}")
    click.echo("  Ctrl-C stops it; everything you made is kept.\n")
    if in_browser:
        webbrowser.open(url)


def _echo_logs(stack: Stack) -> None:
    for process in stack.supervisor.processes:
        name = process.spec.name
        for line in process.tail.new_lines():
            click.echo(click.style(f"{name:8}│ ", fg=COLOURS.get(name)) + line)


def _answers(address: Address) -> bool:
    """Whether the application itself (not just the socket) answers."""
    parsed = urllib.parse.urlsplit(address.url)
    connection = http.client.HTTPConnection(parsed.hostname or "", parsed.port, timeout=2)
    try:
        connection.request("GET", READY_PATH)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
