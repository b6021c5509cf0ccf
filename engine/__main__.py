"""The engine on the command line: `python -m engine generate`, `calibrate`, `models`, ..."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import click

from engine import generating
from engine.calibration import Calibration, calibrations_path, find_calibration, keep_calibration
from engine.checkpoint import check_checkpoint
from engine.errors import CheckpointError, EngineError, InvalidRequest
from engine.families import make_family, read_seeds, read_values
from engine.options import RenderOptions, changed_settings
from engine.registry import (
    ModelSpec,
    checkpoint_folder,
    default_settings,
    get_model,
    list_models,
    require_weights,
    weights_fingerprint,
)
from engine.types import (
    GenerationTask,
    QualityProfile,
    StepCacheMethod,
    StepCachePolicy,
)

EXIT_FAILED = 1
EXIT_USAGE = 2  # as click exits for unknown options
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Render pictures and clips without the rest of Adloom."""


@main.command()
@click.option("--prompt", required=True, help="What to show.")
@click.option("--negative-prompt", help="What to avoid.")
@click.option("--out", type=click.Path(path_type=Path), help=".mp4 or .png file.")
@click.option("--seed", type=int, help="Equal seeds give equal noise.  [default: 0]")
@click.option("--model", "model_id", help="[default: adloom-tiny]")
@click.option(
    "--task",
    type=click.Choice([task.value for task in GenerationTask]),
    help="Default: from --image, --out.",
)
@click.option("--image", type=click.Path(path_type=Path), help="First frame, for i2v.")
@click.option("--size", help='An aspect such as "16:9" or pixels such as "224x128".')
@click.option("--frames", type=int)
@click.option("--fps", type=int)
@click.option("--steps", type=int, help="Denoising steps.")
@click.option("--guidance", type=float, help="Classifier-free guidance scale.")
@click.option(
    "--until-step", type=int, help="Stop after this step, with --save-state; --out gets a draft."
)
@click.option("--save-state", type=click.Path(path_type=Path), help="Where to keep the state.")
@click.option(
    "--from-state",
    type=click.Path(path_type=Path),
    help="Go on from a saved state, with its seed and settings and another prompt.",
)
def generate(
    until_step: int | None, save_state: Path | None, from_state: Path | None, **options: object
) -> None:
    """Render one prompt to a file."""
    with _errors_as_exit_codes():
        asked = RenderOptions(**options)  # type: ignore[arg-type]  # click checked the types
        if (until_step is None) != (save_state is None):
            raise InvalidRequest("until_step", "--until-step and --save-state go together.")
        if until_step is not None and save_state is not None:
            generating.save_state(asked, save_state, step=until_step)
        else:
            generating.generate(asked, from_state=from_state)


@main.command("calibrate")
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    required=True,
    help='With gaps: "a red sneaker on {backdrop}"; several tell more than one.',
)
@click.option(
    "--values",
    multiple=True,
    required=True,
    help='For each gap: "backdrop=a beach|a forest"; "city:geography=..." names another kind.',
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=click.Choice([each.value for each in QualityProfile if each != QualityProfile.EXACT]),
    default=[QualityProfile.CONSISTENT.value],
    show_default=True,
    help="May be given several times; all are measured by the same exact renders.",
)
@click.option("--model", "model_id", default="adloom-tiny", show_default=True)
@click.option("--size", help='An aspect such as "16:9" or pixels such as "224x128".')
@click.option("--frames", type=int)
@click.option("--steps", type=int, help="Denoising steps.")
@click.option("--guidance", type=float, help="Classifier-free guidance scale.")
@click.option("--seeds", default="1,2,3", show_default=True, help="Each prompt is tried with each.")
@click.option("--again", is_flag=True, help="Measure anew what was measured already.")
def calibrate_command(**options: Any) -> None:
    """Measure how much variants may share and still keep a profile's promise."""
    with _errors_as_exit_codes():
        _calibrate(options)


@main.command()
def models() -> None:
    """List the models, what they can do, and whether their weights are there."""
    with _errors_as_exit_codes():
        for spec in list_models():
            click.echo(f"{spec.model_id}  {spec.label}, {spec.licence}")
            click.echo(f"  tasks     {', '.join(spec.tasks)}")
            click.echo(f"  sizes     {', '.join(f'{size} ({size.label})' for size in spec.sizes)}")
            click.echo(
                f"  frames    {spec.min_frames} to {spec.max_frames} as {spec.frame_stride}k+1,"
                f" default {spec.default_frames} at {spec.fps} per second"
            )
            click.echo(
                f"  default   {spec.default_steps} steps, guidance {spec.default_guidance:g}"
            )
            click.echo(f"  weights   {_weights_state(spec)}")


@main.command("contact-sheet")
@click.argument("pictures", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help=".png file.")
@click.option("--columns", default=6, show_default=True, type=click.IntRange(min=1))
@click.option("--label", "labels", multiple=True, help="One for each picture, in their order.")
def contact_sheet(
    pictures: tuple[Path, ...], out: Path, columns: int, labels: tuple[str, ...]
) -> None:
    """Put pictures side by side on one sheet."""
    # Local import: media brings FFmpeg and numpy in.
    from engine import media

    with _errors_as_exit_codes():
        tiles = [media.read_picture(path) for path in pictures]
        media.contact_sheet(tiles, out, columns=columns, labels=labels)
        click.echo(f"{out}: {len(tiles)} picture(s)")


def _calibrate(options: dict[str, Any]) -> None:
    spec = get_model(options["model_id"])
    settings = changed_settings(default_settings(spec.model_id), spec, options)
    values = read_values(options["values"])
    requests = [
        request
        for prompt, seed in product(options["prompts"], read_seeds(options["seeds"]))
        for request in make_family(prompt, values, settings=settings, seed=seed)
    ]
    folder = checkpoint_folder(spec.model_id)
    fingerprint = weights_fingerprint(spec.model_id)
    asked = [replace(settings, profile=QualityProfile(each)) for each in options["profiles"]]
    known = [find_calibration(folder, each, weights_fingerprint=fingerprint) for each in asked]
    missing = [
        each.profile
        for each, found in zip(asked, known, strict=True)
        if found is None or options["again"]
    ]
    if missing:
        # Local import: torch takes seconds to load, and a wrong option should be answered at once.
        from engine.engine import Engine

        for calibration in Engine().calibrate(requests, profiles=missing):
            keep_calibration(folder, calibration)
    for each in asked:
        kept = find_calibration(folder, each, weights_fingerprint=fingerprint)
        if kept is not None:
            _print_calibration(kept, calibrations_path(folder))


def _print_calibration(calibration: Calibration, path: Path) -> None:
    for kind, step in sorted(calibration.fork_steps.items()):
        click.echo(
            f"{kind}: forks at step {step} of {calibration.num_inference_steps},"
            f" {calibration.stems[kind]}"
        )
    click.echo(f"skipped steps: {_policy_words(calibration.step_cache)}")
    click.echo(
        f"holds for all of {calibration.num_variants} variant(s), {calibration.num_prompts}"
        f" prompt(s) and {calibration.num_seeds} seed(s): {_closeness_words(calibration)}"
    )
    clips = calibration.probe_units / calibration.clip_units
    click.echo(f"{path}: {calibration.profile}, measured with {clips:.1f} clips' work")


def _closeness_words(calibration: Calibration) -> str:
    words = {
        "psnr_p50": "PSNR median {:.1f} dB",
        "psnr_p5": "5th percentile {:.1f} dB",
        "ssim_p50": "SSIM median {:.3f}",
        "ssim_p5": "5th percentile {:.3f}",
        "projection_min": "least change {:.2f}",
        "drift_max": "most drift {:.2f}",
    }
    known = calibration.closeness
    told = [text.format(known[name]) for name, text in words.items() if name in known]
    return ", ".join(told) or "nothing is skipped or shared"


def _policy_words(policy: StepCachePolicy | None) -> str:
    if policy is None:
        return "none"
    words = []
    if policy.method is StepCacheMethod.EXTRAPOLATION:
        words.append(f"all but every {policy.interval}. after the first {policy.full_steps:.0%}")
    elif policy.method is not None:
        words.append(f"{policy.method}, threshold {policy.threshold:g}")
    if policy.hold_guidance_from is not None:
        words.append(f"guidance held from {policy.hold_guidance_from:.0%} on")
    return "; ".join(words)


def _weights_state(spec: ModelSpec) -> str:
    try:
        folder = require_weights(spec.model_id)
        check_checkpoint(folder, spec.pipeline_classes)
    except CheckpointError as error:
        return str(error)
    return str(folder)


@contextmanager
def _errors_as_exit_codes() -> Iterator[None]:
    try:
        yield
    except InvalidRequest as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(EXIT_USAGE)
    except EngineError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        click.echo("Stopped; nothing was written.", err=True)
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main(prog_name="python -m engine")
