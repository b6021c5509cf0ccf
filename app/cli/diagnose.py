"""Commands that look and tell: `doctor` and `version`."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import NoReturn

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.options import Settings, shared_options
from app.stack.doctor import Check, Health, examine
from app.stack.folder import StateFolder
from app.stack.program import command

MARKS = {
    Health.OK: ("✓", "green"),
    Health.OFF: ("–", "yellow"),
    Health.WARNING: ("!", "yellow"),
    Health.WRONG: ("✗", "red"),
}


@click.command()
@shared_options
def doctor(settings: Settings) -> None:
    """Say what is up, where the data is, what is wrong and how to mend it."""
    folder = StateFolder.at(settings.state_dir)
    if not folder.is_there and not settings.is_deployed:
        _refuse(folder)
    checks = list(examine(folder, settings.environ, settings.address))
    _print(checks, start=command("up", state_dir=settings.state_dir))
    wrong = [check for check in checks if check.health is Health.WRONG]
    if wrong:
        raise SystemExit(1)


@click.command()
def version() -> None:
    """Print the versions of Adloom and Python."""
    click.echo(version_words())


def version_words() -> str:
    return f"adloom {metadata.version('adloom')} (Python {platform.python_version()})"


def _refuse(folder: StateFolder) -> NoReturn:
    start = command("up", state_dir=folder.root)
    what = "nothing of Adloom in" if folder.root.exists() else "no state folder"
    click.secho(f"There is {what} {folder.root}. Start Adloom once with `{start}`.", fg="red")
    raise SystemExit(1)


def _print(checks: list[Check], *, start: str) -> None:
    """The report; `start` is the command that starts what is off."""
    table = Table(show_header=False, box=None, padding=(0, 1))
    for check in checks:
        mark, colour = MARKS[check.health]
        table.add_row(Text(mark, style=colour), check.subject, Text(check.detail))
    console = Console()
    console.print(table)
    for check in checks:
        if check.health in (Health.WARNING, Health.WRONG):
            mark, colour = MARKS[check.health]
            line = f"\n{mark} {check.subject.strip()}: {check.detail}\n  → {check.remedy}"
            console.print(Text(line, style=colour))
    if all(check.health is not Health.WRONG for check in checks):
        is_off = any(check.health is Health.OFF for check in checks)
        hint = f" Start Adloom with `{start}`." if is_off else ""
        console.print(Text(f"\nNothing is wrong.{hint}", style="green"))
