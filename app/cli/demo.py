"""`adloom demo`: from a CSV to finished videos through the same services as production."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from app.cli.demo_batch import DemoBatch, launch, prepare_batch
from app.cli.demo_input import DemoInput
from app.cli.demo_report import (
    Outcome,
    collect,
    print_cancelled,
    print_quote,
    print_summary,
    print_table,
    watch,
)
from app.cli.demo_runs import take_over
from app.cli.options import Settings, WholeNumber, say, shared_options, warn_of_losses
from app.config import Config
from app.db import Database
from app.errors import ServiceUnavailable
from app.stack.logs import last_lines
from app.stack.program import command
from app.stack.record import running
from app.stack.signals import INTERRUPTED_EXIT, StopRequested, StopRequests
from app.stack.stack import ServersAtEnd, Stack, StackOptions, open_stack
from app.storage import storage_from_url


@click.command()
@click.option(
    "--rows",
    type=WholeNumber(min=1),
    help="Render the first so many rows only; the demo's own table goes up to 280.",
)
@click.option(
    "--csv",
    "csv_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Your own table; its columns fill the placeholders of --prompt.",
)
@click.option("--prompt", help="Prompt template, such as 'a red sneaker in {{ geography }}'.")
@click.option("--keep", is_flag=True, help="Leave Postgres and Valkey running at the end.")
@click.option("--force", is_flag=True, help="Render again what is finished already.")
@shared_options
def demo(
    settings: Settings,
    rows: int | None,
    csv_path: Path | None,
    prompt: str | None,
    keep: bool,
    force: bool,
) -> None:
    """Render a demo campaign and show the result."""
    wanted = DemoInput.read(csv_path=csv_path, rows=rows, prompt=prompt, force=force)
    stops = StopRequests()
    try:
        with stops.listening(), _stack(settings, keep=keep, stops=stops) as (config, tick):
            outcome = _run(settings, config, wanted, tick)
    except StopRequested:
        say("Stopped. What is finished is kept; the same command goes on from here.")
        sys.exit(INTERRUPTED_EXIT)
    sys.exit(1 if outcome.progress.failed else 0)


def _run(
    settings: Settings, config: Config, wanted: DemoInput, tick: Callable[[], None]
) -> Outcome:
    """Prepare, quote, launch, wait and collect."""
    folder = settings.folder()
    database = Database(config)
    storage = storage_from_url(config)
    console = Console()
    try:
        print_table(console, wanted.table)
        demo_batch = prepare_batch(database, storage, wanted, folder=folder)
        print_quote(console, database, demo_batch)
        print_cancelled(console, take_over(database, demo_batch, folder))
        launch(database, demo_batch)
        watch(console, database, demo_batch, tick=tick)
        outcome = collect(database, storage, demo_batch, folder.root / "demo", tick=tick)
    finally:
        database.dispose()
    print_summary(console, outcome)
    _print_way_in(console, settings, demo_batch)
    return outcome


def _print_way_in(console: Console, settings: Settings, demo_batch: DemoBatch) -> None:
    page = f"/batches/{demo_batch.batch.id}"
    record = running(settings.folder())
    if record is not None and record.web_url is not None:
        where = record.web_url + page
    else:
        where = command(f"up --open {page}", state_dir=settings.state_dir)
    console.print(f"Dashboard:     {where}", soft_wrap=True, markup=False)
    console.print(f"Sign in:       {demo_batch.login}", markup=False)


@contextmanager
def _stack(
    settings: Settings, *, keep: bool, stops: StopRequests
) -> Iterator[tuple[Config, Callable[[], None]]]:
    """The running stack if there is one, else one of our own without the web server."""
    folder = settings.folder()
    if running(folder) is not None:
        say("Adloom is already running here; using its workers.")
        yield Config.from_environment(settings.connected_environment()), stops.check
        return
    warn_of_losses(folder, settings.environ)
    options = StackOptions(
        folder=folder,
        environ=settings.environ,
        address=settings.address,
        with_web=False,
        servers_at_end=ServersAtEnd.KEEP if keep else ServersAtEnd.STOP_STARTED,
    )
    say("Starting Postgres, Valkey and the workers …")
    with open_stack(options, say=say, stops=stops) as (stack, config):
        yield config, lambda: _tick(stack)


def _tick(stack: Stack) -> None:
    stack.tick()
    broken = stack.supervisor.hopeless()
    if broken is not None:
        lines = "\n  ".join(last_lines(broken.spec.log, 5))
        raise ServiceUnavailable(
            f"The {broken.spec.name} worker crashes again and again. The end of its log "
            f"({broken.spec.log}):\n  {lines}"
        )
