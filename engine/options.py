"""Turns options of the command line into a request, or into other settings; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import InvalidRequest
from engine.registry import ModelSpec, default_settings, get_model
from engine.types import GenerationRequest, GenerationTask, RenderSettings

DEFAULT_MODEL_ID = "adloom-tiny"
_VIDEO_SUFFIXES = (".mp4",)
_IMAGE_SUFFIXES = (".png",)


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """What the command line asks of one render; None where the model's default holds."""

    prompt: str
    negative_prompt: str | None
    out: Path | None
    seed: int | None
    model_id: str | None
    task: str | None
    image: Path | None
    size: str | None
    frames: int | None
    fps: int | None
    steps: int | None
    guidance: float | None


def changed_settings(
    settings: RenderSettings, spec: ModelSpec, options: Mapping[str, Any]
) -> RenderSettings:
    """The settings with what the command line gave in place of the defaults.

    InvalidRequest for a size that the model does not have.
    """
    width, height = _pixels(spec, options["size"])
    given = {
        "width": width,
        "height": height,
        "num_frames": options["frames"],
        "num_inference_steps": options["steps"],
        "guidance_scale": options["guidance"],
        "fps": options.get("fps"),
    }
    return replace(settings, **{name: v for name, v in given.items() if v is not None})


def make_request(
    options: RenderOptions, *, base: GenerationRequest | None = None
) -> GenerationRequest:
    """The request that the options ask for; InvalidRequest where they contradict each other.

    `base` has what they leave open, in place of the model's defaults.
    """
    if base is None:
        base = _default_request(options)
    settings = base.settings
    if options.model_id is not None:
        settings = replace(settings, model_id=options.model_id)
    if options.task is not None:
        settings = replace(settings, task=GenerationTask(options.task))
    _check_suffix(options.out, settings.task)
    negative_prompt, seed = options.negative_prompt, options.seed
    return replace(
        base,
        prompt=options.prompt,
        negative_prompt=base.negative_prompt if negative_prompt is None else negative_prompt,
        seed=base.seed if seed is None else seed,
        settings=changed_settings(settings, get_model(settings.model_id), asdict(options)),
        references=(options.image,) if options.image else base.references,
    )


def _default_request(options: RenderOptions) -> GenerationRequest:
    spec = get_model(options.model_id or DEFAULT_MODEL_ID)
    return GenerationRequest(
        request_id="cli",
        prompt=options.prompt,
        seed=0,
        settings=default_settings(spec.model_id, task=_task(options)),
    )


def _task(options: RenderOptions) -> GenerationTask:
    """The task asked for, or the one that the files imply."""
    if options.task is not None:
        return GenerationTask(options.task)
    if options.out is not None and options.out.suffix.lower() in _IMAGE_SUFFIXES:
        return GenerationTask.I2I if options.image else GenerationTask.T2I
    return GenerationTask.I2V if options.image else GenerationTask.T2V


def _check_suffix(out: Path | None, task: GenerationTask) -> None:
    wanted = _IMAGE_SUFFIXES if task.is_image else _VIDEO_SUFFIXES
    if out is not None and out.suffix.lower() not in wanted:
        raise InvalidRequest("out", f"{task} writes {wanted[0]}, not {out.name!r}.")


def _pixels(spec: ModelSpec, size: str | None) -> tuple[int | None, int | None]:
    if size is None:
        return None, None
    found = spec.find_size(size)
    if found is None:
        offered = ", ".join(f"{item} ({item.label})" for item in spec.sizes)
        raise InvalidRequest("size", f"{spec.model_id} has no size {size!r}; choose {offered}.")
    return found.width, found.height
