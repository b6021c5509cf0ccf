"""The models the engine can run, as data, and the check of settings against them; no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from engine import checkpoint, inputs
from engine.config import BUNDLED_MODEL_DIR, EngineConfig
from engine.errors import CheckpointError, InvalidRequest, UnknownModel, UnsupportedTask
from engine.models import flux, hidream, ltx2, qwen_image, tiny, wan
from engine.models.spec import Guidance
from engine.models.spec import ModelSpec as ModelSpec
from engine.models.spec import Size as Size
from engine.types import GenerationRequest, GenerationTask, QualityProfile, RenderSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_STEPS: Final = 200
# Where a run is heading is read off its last two states.
MIN_DRAFT_STEP: Final = 2
MAX_GUIDANCE_SCALE: Final = 30.0
MAX_FPS: Final = 60
# A Postgres bigint and a torch generator both hold it.
MAX_SEED: Final = 2**63 - 1

_MODELS: Mapping[str, ModelSpec] = MappingProxyType(
    {
        spec.model_id: spec
        for family in (tiny, wan, ltx2, flux, hidream, qwen_image)
        for spec in family.MODELS
    }
)


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
    if spec.find_size(f"{settings.width}x{settings.height}") is None:
        raise InvalidRequest(
            "size",
            f"{spec.model_id} has no size {settings.width}x{settings.height};"
            f" choose {spec.describe_sizes()}.",
        )
    _validate_frames(spec, settings)
    _validate_range("num_inference_steps", settings.num_inference_steps, 1, MAX_STEPS)
    if settings.draft_step is not None:
        _validate_draft(settings)
    _validate_range("fps", settings.fps, 1, MAX_FPS)
    guidance = settings.guidance_scale
    if not math.isfinite(guidance) or not 0 <= guidance <= MAX_GUIDANCE_SCALE:
        raise InvalidRequest(
            "guidance_scale", f"guidance_scale is {guidance}; choose 0 to {MAX_GUIDANCE_SCALE:g}."
        )


def validate_request(request: GenerationRequest, *, model_dir: Path | None = None) -> None:
    """Raise InvalidRequest for the first fault in settings, prompts, slots, seed or references."""
    validate(request.settings)
    inputs.validate(get_model(request.settings.model_id), request, list_models())
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
            _validate_range("fork_step", slot.fork_step, 0, request.settings.last_step - 1)


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
    if count > spec.max_prompt_tokens:
        raise InvalidRequest(
            field,
            f"The {field.replace('_', ' ')} has {count} tokens, but {model_id} reads"
            f" {spec.max_prompt_tokens}; shorten it.",
        )


def count_tokens(model_id: str, prompt: str, *, model_dir: Path | None = None) -> int:
    """Tokens of a prompt for this model's text encoder, its end mark included.

    Runs of white space count once, as the pipelines clean them away.
    """
    folder = require_weights(model_id, model_dir=model_dir)
    path = folder / get_model(model_id).tokenizer / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(path, "the checkpoint's tokenizer is missing. Copy it anew.")
    return len(_tokenizer(path, path.stat().st_mtime_ns).encode(" ".join(prompt.split())).ids)


def checkpoint_folder(model_id: str, *, model_dir: Path | None = None) -> Path:
    """Where the model's weights belong; `model_dir` defaults to the environment's.

    A built-in model that is not there is the one that comes with the engine.
    """
    spec = get_model(model_id)
    folder = (model_dir or EngineConfig.from_environment().model_dir) / spec.weights
    if spec.hub_id is None and not folder.exists():
        return BUNDLED_MODEL_DIR / spec.weights
    return folder


def require_weights(model_id: str, *, model_dir: Path | None = None) -> Path:
    """The folder of the model's weights; CheckpointError says how to get them where it is not."""
    folder = checkpoint_folder(model_id, model_dir=model_dir)
    if folder.exists():
        return folder
    if get_model(model_id).hub_id is None:
        raise CheckpointError(folder, "is missing, though it is part of Adloom. Install it anew.")
    raise CheckpointError(
        folder,
        f"the weights of {model_id} are not on this machine. Pull them first:"
        f" adloom models pull {model_id} (or set ADLOOM_MODEL_DIR to where they are)",
    )


def default_draft_step(settings: RenderSettings) -> int:
    """Half of the steps: there the prediction shows what the finished render will be."""
    return max(MIN_DRAFT_STEP, settings.num_inference_steps // 2)


def is_installed(model_id: str, *, model_dir: Path | None = None) -> bool:
    """Whether a checkpoint lies where the model's weights belong; its files are not read."""
    return (checkpoint_folder(model_id, model_dir=model_dir) / "model_index.json").is_file()


def reads_negative_prompt(settings: RenderSettings) -> bool:
    """Whether these settings compute an unconditional forward beside each conditional one."""
    guidance = get_model(settings.model_id).guidance
    return guidance is Guidance.CLASSIFIER_FREE and settings.guidance_scale > 1


def forwards_per_step(settings: RenderSettings) -> int:
    """Transformer forwards in one step."""
    return 1 + reads_negative_prompt(settings) + get_model(settings.model_id).extra_forwards


def weights_fingerprint(model_id: str, *, model_dir: Path | None = None) -> str:
    """SHA-256 of the checkpoint's files; CheckpointError where it is missing or not whole."""
    folder = require_weights(model_id, model_dir=model_dir)
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


def _validate_draft(settings: RenderSettings) -> None:
    steps = settings.num_inference_steps
    if steps <= MIN_DRAFT_STEP:
        raise InvalidRequest(
            "draft_step",
            f"A render of {steps} steps has no draft; take {MIN_DRAFT_STEP + 1} steps or more.",
        )
    _validate_range("draft_step", settings.draft_step or 0, MIN_DRAFT_STEP, steps - 1)


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
