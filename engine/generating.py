"""What `python -m engine generate` does: renders to a file, keeps a state, goes on from one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from engine.config import EngineConfig
from engine.errors import EngineError, InvalidRequest
from engine.options import RenderOptions, make_request
from engine.registry import validate_request
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Progress,
    RenderSettings,
)

if TYPE_CHECKING:
    from engine.suspending import StateFile


def generate(options: RenderOptions, *, from_state: Path | None = None) -> None:
    """Render a request to its file, from the start or from a saved state."""
    out = options.out
    if out is None:
        raise InvalidRequest("out", "Say with --out which file to write.")
    state = None if from_state is None else _load(from_state)
    request = _checked_request(options, out, state)
    # Local import: torch takes seconds to load, and a wrong option should be answered at once.
    from engine.engine import Engine

    engine = Engine(EngineConfig.from_environment())
    with _progress_bar(request) as on_progress:
        if state is None:
            outcome = next(engine.generate([request], on_progress=on_progress))
        else:
            outcome = engine.redirect(state, request, on_progress=on_progress)
    _write(_succeeded(outcome), request.settings, out)


def save_state(options: RenderOptions, path: Path, *, step: int) -> None:
    """Run the first steps of a request and keep the state that they lead to.

    With an `out` file that gets the draft: what the model predicts there.
    """
    request = _checked_request(options, path, None)
    if options.out is not None:
        request = replace(request, settings=replace(request.settings, draft_step=step))
        validate_request(request, model_dir=EngineConfig.from_environment().model_dir)
    # Local import: see above.
    from engine.engine import Engine

    engine = Engine(EngineConfig.from_environment())
    with _progress_bar(request) as on_progress:
        if options.out is None:
            engine.run_until(request, step=step, on_progress=on_progress).save(path)
        else:
            draft = _succeeded(next(engine.generate([request], on_progress=on_progress)))
            _write(draft, request.settings, options.out)
            if draft.state is not None:
                draft.state.save(path)
    click.echo(f"{path}: after step {step} of {request.settings.num_inference_steps}")


def _succeeded(outcome: GenerationResult | GenerationFailure) -> GenerationResult:
    if isinstance(outcome, GenerationResult):
        return outcome
    if outcome.code == InvalidRequest.code:
        raise InvalidRequest("request", outcome.message)
    raise EngineError(outcome.message)


def _load(path: Path) -> StateFile:
    # Local import: it brings torch in.
    from engine.suspending import StateFile

    return StateFile.load(path)


def _checked_request(
    options: RenderOptions, path: Path, state: StateFile | None
) -> GenerationRequest:
    """The request, if it can be rendered and its file be written."""
    base = None if state is None else state.request
    request = make_request(options, base=base)
    validate_request(request, model_dir=EngineConfig.from_environment().model_dir)
    for file in (path, options.out or path):
        if not file.parent.is_dir():
            raise InvalidRequest("out", f"The folder {file.parent} does not exist.")
    return request


def _write(result: GenerationResult, settings: RenderSettings, out: Path) -> None:
    # Local import: media brings FFmpeg and numpy in.
    from engine.media import encode_video, write_image

    if settings.task.is_image:
        write_image(result.frames, out)
    else:
        encode_video(result.frames, result.fps, out, audio=result.audio)
    seconds = result.seconds
    click.echo(
        f"{out}: {settings.width}x{settings.height}, {len(result.frames)} frame(s),"
        f" {seconds.total:.2f} s (text {seconds.text:.2f}, denoise {seconds.denoise:.2f},"
        f" decode {seconds.decode:.2f})"
    )


@contextmanager
def _progress_bar(request: GenerationRequest) -> Iterator[Callable[[Progress], None]]:
    """A bar over the denoising steps on a terminal; silence elsewhere."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with ProgressBar(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        row = bar.add_task("Denoising", total=request.settings.last_step)
        yield lambda progress: bar.update(row, completed=progress.step)
