"""Turns options of the command line into a request, or into other settings; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import InvalidRequest
from engine.registry import ModelSpec, default_settings, get_model
from engine.types import GenerationRequest, GenerationTask, RenderSettings

_VIDEO_SUFFIXES = (".mp4",)
_IMAGE_SUFFIXES = (".png",)


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """What the command line asks of one render; None where the model's default holds."""

    prompt: str
    negative_prompt: str
    out: Path
    seed: int
    model_id: str
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


def make_request(options: RenderOptions) -> GenerationRequest:
    """The request that the options ask for; InvalidRequest where they contradict each other."""
    spec = get_model(options.model_id)
    task = _task(options)
    settings = changed_settings(default_settings(spec.model_id, task=task), spec, asdict(options))
    return GenerationRequest(
        request_id="cli",
        prompt=options.prompt,
        negative_prompt=options.negative_prompt,
        seed=options.seed,
        settings=settings,
        references=(options.image,) if options.image else (),
    )


def _task(options: RenderOptions) -> GenerationTask:
    """The task asked for, or the one that the files imply; the output's suffix must fit it."""
    suffix = options.out.suffix.lower()
    if options.task is not None:
        task = GenerationTask(options.task)
    elif suffix in _IMAGE_SUFFIXES:
        task = GenerationTask.I2I if options.image else GenerationTask.T2I
    else:
        task = GenerationTask.I2V if options.image else GenerationTask.T2V
    wanted = _IMAGE_SUFFIXES if task.is_image else _VIDEO_SUFFIXES
    if suffix not in wanted:
        raise InvalidRequest("out", f"{task} writes {wanted[0]}, not {options.out.name!r}.")
    return task


def _pixels(spec: ModelSpec, size: str | None) -> tuple[int | None, int | None]:
    if size is None:
        return None, None
    found = spec.find_size(size)
    if found is None:
        offered = ", ".join(f"{item} ({item.label})" for item in spec.sizes)
        raise InvalidRequest("size", f"{spec.model_id} has no size {size!r}; choose {offered}.")
    return found.width, found.height
