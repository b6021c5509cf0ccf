"""What `adloom demo` shows: the quote, a progress bar, a table, the files and a contact sheet."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table
from sqlalchemy import func, select

from app.cli.demo_batch import DemoBatch
from app.cli.demo_input import DemoTable
from app.cli.demo_runs import CancelledRun
from app.cli.demo_waiting import Waiting, time_left
from app.db import Database
from app.errors import ServiceUnavailable
from app.models import BatchState, Usage
from app.paths import ROOT
from app.services import batches
from app.services.batches import FailureSummary, Progress, VariantView
from app.services.reuse import estimate_reuse
from app.stack.processes import run_watched
from app.storage import Storage

POLL_S = 0.3
# Without a terminal, a line is printed this often.
LINE_EVERY_S = 10.0
SHEET_COLUMNS = 6
SHEET_TILES = 48
SUFFIXES = {"video/mp4": ".mp4", "image/png": ".png"}
ENDED = frozenset({BatchState.COMPLETED, BatchState.FAILED, BatchState.CANCELLED})
MICROS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the batch ended, and where its files are."""

    progress: Progress
    reused: int
    failures: list[FailureSummary]
    folder: Path
    file_count: int
    contact_sheet: Path | None

    @property
    def seconds(self) -> float:
        started, ended = self.progress.started_at, self.progress.ended_at
        return (ended - started).total_seconds() if started and ended else 0.0

    @property
    def rendered(self) -> int:
        return self.progress.done - self.progress.failed - self.reused


def print_table(console: Console, table: DemoTable) -> None:
    """Where the rows come from, and what becomes of their columns."""
    count = f"{table.row_count:,} row" + ("" if table.row_count == 1 else "s")
    uses = {"filling the prompt": table.columns, "kept with each video": table.kept}
    words = [f"{use}: {', '.join(names)}" for use, names in uses.items() if names]
    console.print("; ".join([f"{table.filename}: {count}", *words]), soft_wrap=True, markup=False)


def print_quote(console: Console, database: Database, demo: DemoBatch) -> None:
    """The price before anything is rendered, and what of it is due: what is reused is free."""
    with database.workspace_scope(demo.actor) as session:
        progress = batches.get_progress(session, demo.actor, demo.batch.id)
        reuse = None if demo.is_resumed else estimate_reuse(session, demo.actor, demo.batch.id)
    quote = progress.quote
    total, currency = quote.variant_count, quote.currency
    full, price = _amount(quote.full_cost_micros), _amount(quote.cost_micros)
    saved = f", {full} without sharing" if full != price else ""
    variants = "1 variant" if total == 1 else f"{total} variants"
    console.print(
        f"{demo.batch.name}: {variants}. Quote: {price} {currency} at the workspace's rate{saved}.",
        soft_wrap=True,
        markup=False,
    )
    if reuse is None:
        console.print(
            "Going on with the batch that an earlier run left unfinished: "
            f"{progress.done} of {total} have ended, {_amount(progress.cost_micros)} {currency} "
            "is charged so far.",
            soft_wrap=True,
        )
    elif reuse.variant_count:
        due = f"{_amount(reuse.cost_micros)} {currency}"
        console.print(
            f"{reuse.variant_count} of {total} were rendered before and are reused free of charge, "
            f"so this run costs {due} at most.",
            soft_wrap=True,
        )


def print_cancelled(console: Console, runs: Sequence[CancelledRun]) -> None:
    """What this demo put an end to, so that it does not wait for it."""
    for run in runs:
        console.print(
            f"Cancelled {run.name} of an earlier demo, which was left with {run.done} of "
            f"{run.total} finished; those are kept.",
            markup=False,
        )


def watch(
    console: Console, database: Database, demo: DemoBatch, *, tick: Callable[[], None]
) -> None:
    """Show the progress until the batch has ended; ServiceUnavailable when nothing can work."""
    columns = (
        TextColumn("Rendering"),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[eta]}", markup=False),
    )
    with ProgressBar(*columns, console=console, disable=not console.is_terminal) as bar:
        row = bar.add_task("", total=demo.batch.variant_count, eta="")
        waiting = Waiting(database, demo)
        next_line = time.monotonic() + LINE_EVERY_S
        for progress in _poll(database, demo, tick):
            eta = waiting.reason(progress) or time_left(progress)
            bar.update(row, completed=progress.done + progress.in_flight, eta=eta)
            if not console.is_terminal and time.monotonic() >= next_line:
                next_line += LINE_EVERY_S
                line = f"{progress.done} of {progress.total} {eta}".rstrip()
                console.print(line, soft_wrap=True, markup=False)
        if not console.is_terminal:
            console.print(f"{progress.done} of {progress.total}", markup=False)


def collect(
    database: Database,
    storage: Storage,
    demo: DemoBatch,
    folder: Path,
    *,
    tick: Callable[[], None],
) -> Outcome:
    """Copy the finished files to `folder` under readable names, with a contact sheet."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with database.workspace_scope(demo.actor) as session:
        progress = batches.get_progress(session, demo.actor, demo.batch.id)
        failures = batches.list_failures(session, demo.actor, demo.batch.id)
        reused = session.scalar(
            select(func.count()).where(Usage.batch_id == demo.batch.id, Usage.is_reused)
        )
    count = 0
    with tempfile.TemporaryDirectory(prefix="adloom-demo-") as temporary:
        posters: list[tuple[Path, str]] = []
        for view in _variants(database, demo):
            tick()
            if view.artifact is None:
                continue
            count += 1
            suffix = SUFFIXES.get(view.artifact.media_type, ".bin")
            _copy(storage, view.artifact.storage_key, folder / f"{_file_name(demo, view)}{suffix}")
            if len(posters) < SHEET_TILES:
                poster = Path(temporary) / f"{count}{Path(view.artifact.poster_key).suffix}"
                _copy(storage, view.artifact.poster_key, poster)
                posters.append((poster, " · ".join(_values(demo, view))))
        sheet = (
            _contact_sheet(posters, folder / "contact_sheet.png", tick=tick) if posters else None
        )
    return Outcome(
        progress=progress,
        reused=reused or 0,
        failures=failures,
        folder=folder,
        file_count=count,
        contact_sheet=sheet,
    )


def print_summary(console: Console, outcome: Outcome) -> None:
    """The table of what was rendered, and where it lies."""
    table = Table(show_header=True, header_style="bold")
    for heading in ("Variants", "Rendered", "Reused", "Failed", "Seconds", "Seconds per variant"):
        table.add_column(heading, justify="right")
    pace = f"{outcome.seconds / outcome.rendered:.2f}" if outcome.rendered > 0 else "–"
    table.add_row(
        str(outcome.progress.total),
        str(outcome.rendered),
        str(outcome.reused),
        str(outcome.progress.failed),
        f"{outcome.seconds:.1f}",
        pace,
    )
    console.print(table)
    if outcome.reused:
        console.print(
            f"{outcome.reused} of {outcome.progress.total} were rendered before and reused "
            "free of charge; --force renders them again."
        )
    for failure in outcome.failures:
        console.print(f"{failure.count} failed: {failure.message}", style="red", markup=False)
    console.print(f"Files:         {outcome.folder} ({outcome.file_count})", soft_wrap=True)
    if outcome.contact_sheet is not None:
        console.print(f"Contact sheet: {outcome.contact_sheet}", soft_wrap=True)


def _amount(micros: int) -> str:
    return f"{micros / MICROS:.2f}"


def _poll(database: Database, demo: DemoBatch, tick: Callable[[], None]) -> Iterator[Progress]:
    while True:
        tick()
        with database.workspace_scope(demo.actor) as session:
            progress = batches.get_progress(session, demo.actor, demo.batch.id)
            failure = batches.get_batch(session, demo.actor, demo.batch.id).failure
        yield progress
        if progress.state is BatchState.FAILED:
            raise ServiceUnavailable(f"The batch could not be expanded: {failure}")
        if progress.state in ENDED:
            return
        time.sleep(POLL_S)


def _variants(database: Database, demo: DemoBatch) -> Iterator[VariantView]:
    after = -1
    while True:
        with database.workspace_scope(demo.actor) as session:
            page = batches.list_variants(session, demo.actor, demo.batch.id, after_ordinal=after)
        if not page:
            return
        yield from page
        after = page[-1].variant.ordinal


def _values(demo: DemoBatch, view: VariantView) -> list[str]:
    """The values of a variant in the order of the prompt."""
    names = (parameter["name"] for parameter in demo.batch.spec["parameters"])
    return [str(view.variant.values[name]) for name in names]


def _file_name(demo: DemoBatch, view: VariantView) -> str:
    """Sorts in the order of the rows and says what is in it."""
    words = "-".join(_values(demo, view)).lower()
    return f"{view.variant.ordinal + 1:04d}-{re.sub(r'[^a-z0-9]+', '-', words).strip('-')[:80]}"


def _copy(storage: Storage, key: str, path: Path) -> None:
    with storage.open(key) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)


def _contact_sheet(
    posters: list[tuple[Path, str]], path: Path, *, tick: Callable[[], None]
) -> Path:
    """Made by the engine's own process: the control plane loads no imaging library."""
    labels = [option for _, label in posters for option in ("--label", label)]
    command = [
        *(sys.executable, "-m", "engine", "contact-sheet", "--out", str(path)),
        *("--columns", str(SHEET_COLUMNS), *labels, "--", *(str(file) for file, _ in posters)),
    ]
    done = run_watched(command, check=tick, cwd=ROOT)
    if done.returncode != 0:
        raise ServiceUnavailable(f"The contact sheet could not be made: {done.stderr.strip()}")
    return path
