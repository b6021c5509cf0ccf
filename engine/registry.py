"""The models the engine can run, as data, and the check of settings against them; no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from engine import checkpoint
from engine.config import EngineConfig
from engine.costs import CostModel
from engine.errors import CheckpointError, InvalidRequest, UnknownModel, UnsupportedTask
from engine.types import GenerationRequest, GenerationTask, QualityProfile, RenderSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_STEPS: Final = 200
MAX_GUIDANCE_SCALE: Final = 30.0
MAX_FPS: Final = 60
# A Postgres bigint and a torch generator both hold it.
MAX_SEED: Final = 2**63 - 1
# Image files that each task reads.
REFERENCE_COUNTS: Final = MappingProxyType(
    {GenerationTask.T2I: 0, GenerationTask.T2V: 0, GenerationTask.I2I: 1, GenerationTask.I2V: 1}
)


@dataclass(frozen=True, kw_only=True)
class Size:
    """An output size in pixels that a model was trained for, with its aspect as label."""

    width: int
    height: int
    label: str

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What a diffusion model can do and needs.

    `weights` is the checkpoint's folder below `EngineConfig.model_dir`; `runner` is our class
    that drives the family; `pipelines` names the diffusers class per task, both "module:Class".
    The first size is the default one. Frames are 4k+1 where `frame_stride` is 4.
    """

    model_id: str
    label: str
    weights: str
    runner: str
    pipelines: Mapping[GenerationTask, str]
    sizes: tuple[Size, ...]
    frame_stride: int
    min_frames: int
    default_frames: int
    max_frames: int
    fps: int
    default_steps: int
    default_guidance: float
    max_sequence_length: int
    cost: CostModel
    licence: str

    @property
    def tasks(self) -> tuple[GenerationTask, ...]:
        return tuple(self.pipelines)

    @property
    def pipeline_classes(self) -> frozenset[str]:
        """Class names that a checkpoint of this model may carry in its model_index.json."""
        return frozenset(name.partition(":")[2] for name in self.pipelines.values())

    def find_size(self, name: str) -> Size | None:
        """The size with this label ("16:9") or these pixels ("224x128")."""
        return next((size for size in self.sizes if name in (size.label, str(size))), None)


_TINY = ModelSpec(
    model_id="adloom-tiny",
    label="Adloom Tiny (built in)",
    weights="tiny",
    runner="engine.pipelines.wan:WanRunner",
    pipelines=MappingProxyType(
        {
            GenerationTask.T2V: "diffusers:WanPipeline",
            GenerationTask.I2V: "diffusers:WanImageToVideoPipeline",
            GenerationTask.T2I: "diffusers:WanPipeline",
        }
    ),
    sizes=(
        Size(width=224, height=128, label="16:9"),
        Size(width=128, height=224, label="9:16"),
        Size(width=160, height=160, label="1:1"),
        Size(width=128, height=160, label="4:5"),
    ),
    frame_stride=4,
    min_frames=5,
    default_frames=17,
    max_frames=17,
    fps=12,
    default_steps=30,
    default_guidance=4.0,
    max_sequence_length=64,
    cost=CostModel(
        num_layers=6,
        dim=320,
        ffn_dim=768,
        text_tokens=64,
        has_token_timesteps=True,
        token_stride=(4, 32, 32),
        decode_flops=102_500.0,
    ),
    licence="Apache-2.0",
)

_MODELS: Final = MappingProxyType({spec.model_id: spec for spec in (_TINY,)})


def list_models() -> tuple[ModelSpec, ...]:
    return tuple(_MODELS.values())


def get_model(model_id: str) -> ModelSpec:
    """The model of this id; UnknownModel names those there are."""
    spec = _MODELS.get(model_id)
    if spec is None:
        raise UnknownModel(model_id, _MODELS)
    return spec


def default_settings(
    model_id: str,
    *,
    task: GenerationTask | None = None,
    size: Size | None = None,
    profile: QualityProfile = QualityProfile.EXACT,
) -> RenderSettings:
    """The model's recommended settings for a task (its first one by default) and a size."""
    spec = get_model(model_id)
    task = task or spec.tasks[0]
    size = size or spec.sizes[0]
    return RenderSettings(
        model_id=model_id,
        task=task,
        width=size.width,
        height=size.height,
        num_frames=1 if task.is_image else spec.default_frames,
        fps=spec.fps,
        num_inference_steps=spec.default_steps,
        guidance_scale=spec.default_guidance,
        profile=profile,
    )


def validate(settings: RenderSettings) -> None:
    """Raise InvalidRequest for the first setting that the model cannot render; says the way out."""
    spec = get_model(settings.model_id)
    if settings.task not in spec.pipelines:
        able = [other.model_id for other in list_models() if settings.task in other.pipelines]
        raise UnsupportedTask(spec.model_id, settings.task, can=spec.tasks, able=able)
    if not any((s.width, s.height) == (settings.width, settings.height) for s in spec.sizes):
        offered = ", ".join(f"{size} ({size.label})" for size in spec.sizes)
        raise InvalidRequest(
            "size",
            f"{spec.model_id} has no size {settings.width}x{settings.height}; choose {offered}.",
        )
    _validate_frames(spec, settings)
    _validate_range("num_inference_steps", settings.num_inference_steps, 1, MAX_STEPS)
    _validate_range("fps", settings.fps, 1, MAX_FPS)
    guidance = settings.guidance_scale
    if not math.isfinite(guidance) or not 0 <= guidance <= MAX_GUIDANCE_SCALE:
        raise InvalidRequest(
            "guidance_scale", f"guidance_scale is {guidance}; choose 0 to {MAX_GUIDANCE_SCALE:g}."
        )


def validate_request(request: GenerationRequest, *, model_dir: Path | None = None) -> None:
    """Raise InvalidRequest for the first fault in settings, prompts, slots, seed or references."""
    validate(request.settings)
    validate_prompt(request.settings.model_id, request.prompt, model_dir=model_dir)
    if request.negative_prompt:
        validate_prompt(
            request.settings.model_id,
            request.negative_prompt,
            field="negative_prompt",
            model_dir=model_dir,
        )
    if not 0 <= request.seed <= MAX_SEED:
        raise InvalidRequest("seed", f"The seed is {request.seed}; choose 0 to {MAX_SEED}.")
    end_before = 0
    for slot in sorted(request.slots, key=lambda slot: slot.span):
        start, end = slot.span
        if start < end_before or request.prompt[start:end] != slot.value:
            raise InvalidRequest(
                "slots",
                f"The slot {slot.name!r} says that {slot.value!r} stands at {start}-{end} of the"
                f" prompt, but there is {request.prompt[start:end]!r}, or another slot.",
            )
        end_before = end
        if slot.fork_step is not None:
            _validate_range(
                "fork_step", slot.fork_step, 0, request.settings.num_inference_steps - 1
            )
    task = request.settings.task
    wanted = REFERENCE_COUNTS.get(task)
    if wanted is not None and len(request.references) != wanted:
        raise InvalidRequest(
            "references",
            f"{task} reads {wanted} reference image(s), {len(request.references)} given.",
        )


def validate_prompt(
    model_id: str, prompt: str, *, field: str = "prompt", model_dir: Path | None = None
) -> None:
    """Raise InvalidRequest where a prompt is empty or longer than the model reads.

    A longer prompt would be cut silently by the pipeline, and two variants that differ only
    after the cut would come out the same.
    """
    spec = get_model(model_id)
    if not prompt.strip():
        raise InvalidRequest(field, f"The {field.replace('_', ' ')} is empty.")
    count = count_tokens(model_id, prompt, model_dir=model_dir)
    if count > spec.max_sequence_length:
        raise InvalidRequest(
            field,
            f"The {field.replace('_', ' ')} has {count} tokens, but {model_id} reads"
            f" {spec.max_sequence_length}; shorten it.",
        )


def count_tokens(model_id: str, prompt: str, *, model_dir: Path | None = None) -> int:
    """Tokens of a prompt for this model's text encoder, its end mark included.

    Runs of white space count once, as the pipelines clean them away.
    """
    folder = checkpoint_folder(model_id, model_dir=model_dir)
    checkpoint.require_folder(folder)
    path = folder / "tokenizer" / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(path, "the checkpoint's tokenizer is missing. Copy it anew.")
    return len(_tokenizer(path, path.stat().st_mtime_ns).encode(" ".join(prompt.split())).ids)


def checkpoint_folder(model_id: str, *, model_dir: Path | None = None) -> Path:
    """Where the model's weights belong; `model_dir` defaults to the environment's."""
    base = model_dir or EngineConfig.from_environment().model_dir
    return base / get_model(model_id).weights


def weights_fingerprint(model_id: str, *, model_dir: Path | None = None) -> str:
    """SHA-256 of the checkpoint's files; CheckpointError where it is missing or not whole."""
    folder = checkpoint_folder(model_id, model_dir=model_dir)
    checkpoint.check_checkpoint(folder, get_model(model_id).pipeline_classes)
    return checkpoint.fingerprint(folder)


def _validate_frames(spec: ModelSpec, settings: RenderSettings) -> None:
    frames, stride = settings.num_frames, spec.frame_stride
    if settings.task.is_image:
        if frames != 1:
            raise InvalidRequest("num_frames", f"{settings.task} renders 1 frame, not {frames}.")
        return
    _validate_range("num_frames", frames, spec.min_frames, spec.max_frames)
    if frames % stride != 1:
        lower = (frames - 1) // stride * stride + 1
        raise InvalidRequest(
            "num_frames",
            f"{spec.model_id} renders {stride}k+1 frames, not {frames};"
            f" choose {lower} or {lower + stride}.",
        )


def _validate_range(field: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise InvalidRequest(field, f"{field} is {value}; choose {lowest} to {highest}.")


@lru_cache(maxsize=8)
def _tokenizer(path: Path, mtime_ns: int) -> Tokenizer:
    # Local import: most users of the registry never count tokens.
    from tokenizers import Tokenizer

    del mtime_ns  # part of the cache's key: a new file is read anew
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception for a damaged file
        raise CheckpointError(path, f"is not a tokenizer file ({error}). Copy it anew.") from None
    # A saved tokenizer may carry padding or truncation, which would hide the true length.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
