"""`adloom models`: what can be rendered with, and fetching, checking and removing its weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from app.cli.options import say
from engine import pulling
from engine.checkpoint import check_checkpoint
from engine.config import EngineConfig, HubConfig
from engine.errors import EngineError
from engine.hardware import memory_of_this_machine
from engine.memory import MemoryThere, find_needs, plan_memory
from engine.pulling import ProgressListener, PullProgress
from engine.registry import ModelSpec, get_model, list_models, require_weights
from engine.snapshots import SnapshotLock, find_damage, read_lock

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
HEADINGS = ("MODEL", "TASKS", "LICENCE", "SIZE", "ON THIS MACHINE")


@click.group()
def models() -> None:
    """List the models; pull, verify and remove their weights."""


@models.command("list")
@click.option("--gpu-gb", type=click.IntRange(min=1), help="As if there were a GPU of this size.")
def list_command(gpu_gb: int | None) -> None:
    """List the models, which of them are on this machine, and how they fit into its memory."""
    config = EngineConfig.from_environment()
    model_dir = config.model_dir
    there = memory_of_this_machine()
    if gpu_gb is not None:
        there = replace(there, device_bytes=gpu_gb << 30)
    rows = [HEADINGS, *(_row(spec, model_dir) for spec in list_models())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        click.echo("  ".join([*cells, row[-1]]))
        needs = find_needs(row[0])
        if needs is not None:
            plan = plan_memory(needs, there, asked=config.weights)
            click.secho(f"    {plan.reason}", fg=None if plan.fits else "yellow", dim=plan.fits)
    click.echo(f"\n{_told(there)}")
    click.echo(f"Weights belong in {model_dir}; ADLOOM_MODEL_DIR names another folder.")


@models.command()
@click.argument("model_id", metavar="MODEL")
@click.option("--revision", help="Branch, tag or commit; default: the locked one, else main.")
def pull(model_id: str, revision: str | None) -> None:
    """Fetch a model from the Hugging Face hub, or mend it.

    A pull that breaks off goes on where it was. HF_TOKEN opens gated models, HF_ENDPOINT names a
    mirror of the hub.
    """
    spec = get_model(model_id)
    model_dir = EngineConfig.from_environment().model_dir
    say(f"{spec.label}: {_terms(spec)}")
    try:
        with _progress() as listen:
            done = pulling.pull(
                spec,
                model_dir=model_dir,
                hub=HubConfig.from_environment(),
                revision=revision,
                on_progress=listen,
            )
    except KeyboardInterrupt:
        say("Stopped. What has come is kept; the same command goes on from there.")
        raise SystemExit(EXIT_INTERRUPTED) from None
    if done.fetched_bytes:
        come = f"pulled, {_size(done.fetched_bytes)} fetched"
    else:
        come = "is here already, and whole"
    click.echo(f"{spec.model_id} {come}: {done.folder} at {done.lock.revision}")


@models.command()
@click.argument("model_ids", metavar="[MODEL]...", nargs=-1)
def verify(model_ids: tuple[str, ...]) -> None:
    """Read weights and compare them with what the hub said when they were pulled.

    Without a name, all models on this machine are read.
    """
    model_dir = EngineConfig.from_environment().model_dir
    specs = [get_model(model_id) for model_id in model_ids] or [
        spec for spec in list_models() if (model_dir / spec.weights).exists()
    ]
    damaged = [spec.model_id for spec in specs if not _verify(spec, model_dir)]
    if damaged:
        raise SystemExit(1)


@models.command()
@click.argument("model_id", metavar="MODEL")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(model_id: str, yes: bool) -> None:
    """Remove a model's weights, and what an unfinished pull has brought."""
    spec = get_model(model_id)
    model_dir = EngineConfig.from_environment().model_dir
    folder = model_dir / spec.weights
    if not yes and spec.hub_id is not None and folder.exists():
        held = "" if folder.is_symlink() else f" ({_size(pulling.folder_bytes(folder))})"
        click.confirm(f"Remove {folder}{held}?", abort=True)
    removed = pulling.remove(spec, model_dir=model_dir)
    click.echo(f"Removed {removed.folder}; {_size(removed.freed_bytes)} freed.")


def _told(there: MemoryThere) -> str:
    """What the lines about memory mean."""
    where = "no GPU was found, so they are for the CPU"
    if there.device_bytes is not None:
        where = f"they are for a GPU of {there.device_bytes >> 30} GB"
    return (
        f"What models take is computed for their default sizes and one clip at a time; {where} and"
        f" {there.host_bytes >> 30} GB of host memory."
    )


def _row(spec: ModelSpec, model_dir: Path) -> tuple[str, ...]:
    folder = model_dir / spec.weights
    size = _size(pulling.folder_bytes(folder)) if folder.exists() else "–"
    return (spec.model_id, " ".join(spec.tasks), spec.licence, size, _where(spec, model_dir))


def _where(spec: ModelSpec, model_dir: Path) -> str:
    """Where the weights are and from which commit, or how to get them."""
    folder = model_dir / spec.weights
    if folder.exists():
        try:
            check_checkpoint(folder, spec.pipeline_classes)
            lock = read_lock(folder)
        except EngineError as error:
            return f"damaged: {error}"
        origin = f"at {lock.revision[:12]}" if lock is not None else "put there by hand"
        return f"{folder}, {origin if spec.hub_id else 'built in'}"
    partial_bytes = pulling.partial_bytes(spec, model_dir=model_dir)
    if partial_bytes:
        return f"{_size(partial_bytes)} of it; go on: adloom models pull {spec.model_id}"
    return "no" if spec.hub_id else f"no: {folder} is missing"


def _verify(spec: ModelSpec, model_dir: Path) -> bool:
    """Print what was found of one model; whether it is whole."""
    folder = require_weights(spec.model_id, model_dir=model_dir)
    lock = read_lock(folder)
    if lock is None:
        try:
            check_checkpoint(folder, spec.pipeline_classes)
        except EngineError as error:
            click.echo(f"✗ {spec.model_id}: {error}")
            return False
        click.echo(
            f"✓ {spec.model_id}: all parts are there and have their lengths. Nothing is known of"
            " their contents: they were not pulled."
        )
        return True
    return _verify_locked(spec, folder, lock)


def _verify_locked(spec: ModelSpec, folder: Path, lock: SnapshotLock) -> bool:
    with _progress() as listen:
        done_bytes = 0

        def count(num_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += num_bytes
            listen(
                PullProgress(
                    is_check=True, path="", done_bytes=done_bytes, total_bytes=lock.size_bytes
                )
            )

        damages = list(find_damage(folder, lock.files, on_bytes=count))
    for damage in damages:
        click.echo(f"✗ {spec.model_id}: {folder / damage.path} {damage.reason}.")
    if damages:
        click.echo(f"  → Mend it: adloom models pull {spec.model_id}")
        return False
    click.echo(
        f"✓ {spec.model_id}: {len(lock.files)} files ({_size(lock.size_bytes)}) as the hub has"
        f" them at {lock.revision[:12]}."
    )
    return True


@contextmanager
def _progress() -> Iterator[ProgressListener]:
    """A bar on the terminal; nothing where output goes to a file."""
    columns: Sequence[TextColumn | BarColumn | DownloadColumn | TransferSpeedColumn]
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    bar = Progress(
        *columns,
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks = {}

    def listen(progress: PullProgress) -> None:
        if progress.is_check not in tasks:
            tasks[progress.is_check] = bar.add_task("")
        bar.update(
            tasks[progress.is_check],
            description="Checking" if progress.is_check else progress.path,
            completed=progress.done_bytes,
            total=progress.total_bytes,
        )

    with bar:
        yield listen


def _terms(spec: ModelSpec) -> str:
    use = "" if spec.is_commercial else ", not for commercial use"
    return f"{spec.licence}{use}" + (f" ({spec.licence_url})" if spec.licence_url else "")


def _size(size_bytes: int) -> str:
    """Decimal units, as disks and the hub's pages count."""
    for unit, divisor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= divisor:
            return f"{size_bytes / divisor:.1f} {unit}"
    return f"{size_bytes} B"
