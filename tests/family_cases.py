"""One case for each task of each model with a small checkpoint, rendered by diffusers alone too."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FlowMatchLCMScheduler
from numpy.typing import NDArray
from PIL import Image, ImageOps
from safetensors.torch import save_file
from transformers import AutoTokenizer, LlamaForCausalLM

from engine import registry
from engine.config import EngineConfig
from engine.engine import Engine
from engine.pipelines.base import Conditioning, resolve
from engine.registry import default_settings, get_model, reads_negative_prompt
from engine.types import GenerationRequest, GenerationTask, Lora, PromptSlot
from tests import small_checkpoints
from tests.small_checkpoints import small_model, small_model_dir

STEPS = 4
PROMPT = "a red sneaker on a beach"
NEGATIVE = "blurry"


@dataclass(frozen=True)
class Case:
    """One task of one model."""

    model_id: str
    task: GenerationTask

    def __str__(self) -> str:
        return f"{self.model_id}-{self.task}"

    def request(self, prompt: str = PROMPT, *, seed: int = 7) -> GenerationRequest:
        """A small request with all that the task reads."""
        spec = get_model(self.model_id)
        settings = default_settings(self.model_id, task=self.task)
        settings = replace(settings, num_inference_steps=STEPS)
        if not self.task.is_image:
            settings = replace(settings, num_frames=spec.frame_stride + 1)
        inputs = spec.inputs_of(self.task)
        count = min(inputs.max_references, 2)
        return GenerationRequest(
            request_id=f"{self}-{prompt}-{seed}",
            prompt=prompt,
            negative_prompt=NEGATIVE if reads_negative_prompt(settings) else "",
            seed=seed,
            settings=settings,
            references=tuple(picture(place) for place in range(count)),
            last_frame=picture(2) if inputs.takes_last_frame else None,
            mask=mask() if inputs.needs_mask else None,
            strength=None if inputs.default_strength is None else 0.6,
        )

    def family(self) -> list[GenerationRequest]:
        """Two variants that part after the first step."""
        return [
            replace(
                self.request(f"a sneaker on {place}", seed=5),
                slots=(
                    PromptSlot(
                        name="place",
                        kind="backdrop",
                        value=place,
                        span=(13, 13 + len(place)),
                        fork_step=1,
                    ),
                ),
            )
            for place in ("a beach", "snow")
        ]


def all_cases() -> list[Case]:
    """A case for each task of each model that has a small checkpoint."""
    return [
        Case(model_id, task)
        for model_id in small_checkpoints.CHECKPOINTS
        for task in get_model(model_id).tasks
    ]


def use_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the registry offer the small sizes of the small checkpoints."""
    monkeypatch.setattr(registry, "_MODELS", _small_models())


@cache
def _small_models() -> dict[str, Any]:
    return {model_id: small_model(model_id) for model_id in small_checkpoints.CHECKPOINTS}


@dataclass
class Engines:
    """One engine, kept as long as tests ask for the same model."""

    _engine: Engine | None = None
    _model_id: str = ""

    def of(self, case: Case) -> Engine:
        if case.model_id != self._model_id or self._engine is None:
            self._engine = Engine(
                EngineConfig(device="cpu", model_dir=small_model_dir(), guard_every=0)
            )
            self._model_id = case.model_id
        return self._engine

    def runner(self, case: Case) -> Any:
        return self.of(case).models.get(case.model_id).model.runner


def condition(runner: Any, request: GenerationRequest) -> Conditioning:
    """What the request's prompts become."""
    reads_negative = reads_negative_prompt(request.settings)
    return Conditioning(
        positive=runner.encode(request.prompt),
        negative=runner.encode(request.negative_prompt) if reads_negative else None,
    )


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="adloom-pictures-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def picture(seed: int) -> Path:
    """A picture of noise in large squares, as large as the small checkpoints' pictures."""
    path = _folder() / f"{seed}.png"
    squares = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(squares).resize((128, 128), Image.Resampling.NEAREST).save(path)
    return path


@cache
def mask() -> Path:
    """White in its right half."""
    path = _folder() / "mask.png"
    pixels = np.zeros((128, 128), dtype=np.uint8)
    pixels[:, 64:] = 255
    Image.fromarray(pixels).save(path)
    return path


@cache
def _plain_pipeline(case: Case) -> Any:
    spec = get_model(case.model_id)
    folder = small_model_dir() / spec.weights
    extra: dict[str, Any] = {}
    if case.model_id == "flux.2-dev":
        extra = {"tokenizer": None}
    if case.model_id.startswith("hidream"):
        extra = {
            "text_encoder_4": LlamaForCausalLM.from_pretrained(
                folder / "text_encoder_4", attn_implementation="eager"
            ),
            "tokenizer_4": AutoTokenizer.from_pretrained(folder / "tokenizer_4"),
        }
    pipeline = resolve(spec.pipelines[case.task]).from_pretrained(
        folder, dtype=torch.float32, **extra
    )
    if case.model_id == "flux.2-dev":
        pipeline.tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def render_plainly(
    case: Case, request: GenerationRequest
) -> tuple[NDArray[np.uint8], NDArray[np.float32] | None]:
    """The request through diffusers alone, from prompt to pictures and sound."""
    spec, settings = get_model(case.model_id), request.settings
    pipeline = _plain_pipeline(case)
    generator = torch.Generator("cpu").manual_seed(request.seed)
    arguments: dict[str, Any] = {
        "prompt": request.prompt,
        "height": settings.height,
        "width": settings.width,
        "num_inference_steps": settings.num_inference_steps,
        "guidance_scale": settings.guidance_scale,
        "max_sequence_length": spec.max_sequence_length,
        "generator": generator,
        "output_type": "pil",
    }
    if reads_negative_prompt(settings):
        arguments["negative_prompt"] = request.negative_prompt
    arguments |= _family_arguments(case, request, pipeline)
    with _drawing_from(generator, pipeline.scheduler):
        output = pipeline(**arguments)
    if settings.task.is_image:
        return np.stack([np.asarray(each) for each in output.images]), None
    frames = np.stack([np.asarray(each) for each in output.frames[0]])
    audio = output.audio[0].float().clamp(-1, 1).T.numpy() if spec.has_audio else None
    return frames, audio


@contextmanager
def _drawing_from(generator: torch.Generator, scheduler: Any) -> Iterator[None]:
    """Let a solver that draws noise in its steps draw it from the request's generator.

    HiDreamImagePipeline hands on none, so it would draw from torch's global one.
    """
    if not isinstance(scheduler, FlowMatchLCMScheduler):
        yield
        return
    scheduler.step = partial(type(scheduler).step, scheduler, generator=generator)
    try:
        yield
    finally:
        del scheduler.step


def _family_arguments(case: Case, request: GenerationRequest, pipeline: Any) -> dict[str, Any]:
    """What one family's pipeline is given besides, as its documentation says."""
    settings = request.settings
    size = (settings.width, settings.height)
    pictures = [_fitted(path, size) for path in request.references]
    family = case.model_id.partition("-")[0].rstrip("0123456789.")
    if family in ("wan", "ltx"):
        arguments: dict[str, Any] = {"num_frames": settings.num_frames}
        if case.model_id == "wan2.2-t2v-a14b":
            arguments["guidance_scale_2"] = 3.0
        if case.task is GenerationTask.I2V:
            arguments["image"] = pictures[0]
        if case.task is GenerationTask.R2V:
            arguments["reference_images"] = [pictures]
        if request.last_frame is not None:
            arguments["last_image"] = _fitted(request.last_frame, size)
        if family == "ltx":
            arguments["frame_rate"] = float(settings.fps)
            # Guidance by attention that is left out, which these weights do not know.
            arguments |= {"stg_scale": 0.0, "audio_stg_scale": 0.0}
        return arguments
    if family == "hidream":
        # The side of the latents in the training, of which the pipeline has a constant.
        pipeline.default_sample_size = 16
        return {}
    if family == "qwen":
        return {"true_cfg_scale": settings.guidance_scale, "guidance_scale": None}
    if case.model_id == "flux.2-dev":
        layers = {"text_encoder_out_layers": (1, 2, 3)}
        return layers | ({"image": pictures} if pictures else {})
    if case.task is not GenerationTask.I2I:
        return {}
    arguments = {"image": pictures[0]}
    if case.model_id == "flux.1-kontext-dev":
        return arguments | {"max_area": size[0] * size[1], "_auto_resize": False}
    # Of six steps diffusers runs the last four at this strength.
    arguments |= {"strength": 0.6, "num_inference_steps": 6}
    if request.mask is not None:
        arguments["mask_image"] = Image.open(request.mask).resize(size)
    return arguments


def _fitted(path: Path, size: tuple[int, int]) -> Image.Image:
    return ImageOps.fit(Image.open(path).convert("RGB"), size, Image.Resampling.LANCZOS)


def write_lora(case: Case, path: Path, seed: int) -> Lora:
    """A random LoRA of rank 2 on the query projections of the model's transformer."""
    transformer = _plain_pipeline(case).transformer
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, torch.Tensor] = {}
    for name, module in transformer.named_modules():
        if name.endswith(".to_q") and isinstance(module, torch.nn.Linear):
            shapes = {"A": (2, module.in_features), "B": (module.out_features, 2)}
            for part, shape in shapes.items():
                values = torch.randn(shape, generator=generator)
                weights[f"transformer.{name}.lora_{part}.weight"] = values
    save_file(weights, path)
    return Lora(path=path)
