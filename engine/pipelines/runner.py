"""What the runners of all model families have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from engine.errors import InvalidRequest
from engine.pipelines.base import Placement, load_pipeline, refuse_non_finite, resolve
from engine.registry import ModelSpec
from engine.types import Audio, GenerationRequest, GenerationTask, Lora

# A LoRA of one expert says so in its file's name.
_HIGH_NOISE, _LOW_NOISE = "high_noise", "low_noise"


class DiffusersRunner:
    """A loaded checkpoint; the pipelines of its tasks share one set of modules.

    A family says which parts keep float32 and what of the loaded pipeline's configuration the
    pipelines of other tasks are made with. It adds `encode`, `prepare` and `decode`.
    """

    float32_parts: ClassVar[tuple[str, ...]] = ()
    shared_config: ClassVar[tuple[str, ...]] = ()

    def __init__(self, spec: ModelSpec, folder: Path, placement: Placement, pipeline: Any) -> None:
        self.placement = placement
        self.solver = type(pipeline.scheduler).__name__
        self._spec = spec
        self._folder = folder
        self._pipelines = {type(pipeline).__name__: pipeline}
        self._main = pipeline
        self._loras: tuple[Lora, ...] = ()

    @classmethod
    def load(cls, spec: ModelSpec, folder: Path, placement: Placement) -> Self:
        """Load the checkpoint; CheckpointError where that is impossible."""
        pipeline = load_pipeline(
            spec,
            folder,
            placement,
            float32_parts=cls.float32_parts,
            parts=cls.load_parts(folder, placement),
        )
        return cls(spec, folder, placement, pipeline)

    @classmethod
    def load_parts(cls, folder: Path, placement: Placement) -> Mapping[str, Any]:
        """Parts that a published checkpoint lacks, by their names in the pipeline."""
        return MappingProxyType({})

    @property
    def parts(self) -> dict[str, Any]:
        """The pipeline's parts by name; the pipelines of all tasks share them."""
        components: dict[str, Any] = self._main.components
        return components

    @property
    def is_fast(self) -> bool:
        """Whether there is a faster way that equals diffusers up to rounding only."""
        return False

    def fast_forwards(self) -> AbstractContextManager[None]:
        """Compute the transformer's forwards the fast way while the context is open."""
        return nullcontext()

    def decode_fast(self, latents: torch.Tensor) -> NDArray[np.uint8]:
        """Turn latents into RGB frames (B, F, H, W, 3) the fast way."""
        raise NotImplementedError(f"{type(self).__name__} has no faster way")

    def by_token(self, latents: torch.Tensor, request: GenerationRequest) -> torch.Tensor:
        """The picture's latents of one row as (1, C, ...): packed ones are (1, S, C)."""
        return latents.transpose(1, 2) if latents.ndim == 3 else latents

    def decode_audio(self, latents: torch.Tensor, request: GenerationRequest) -> Audio | None:
        """Turn the latents of one row into sound; None for a model without any."""
        return None

    def use_loras(self, loras: Sequence[Lora]) -> None:
        """Apply these LoRAs from now on and no others; InvalidRequest where one does not fit.

        The weights themselves stay untouched, so without LoRAs the pixels are as before.
        """
        if tuple(loras) == self._loras:
            return
        self._main.unload_lora_weights()
        self._loras = ()
        try:
            names = [self._load_lora(lora, name=f"lora_{at}") for at, lora in enumerate(loras)]
            if names:
                self._main.set_adapters(names, [lora.weight for lora in loras])
        except Exception:
            self._main.unload_lora_weights()
            raise
        self._loras = tuple(loras)

    def _load_lora(self, lora: Lora, *, name: str) -> str:
        if not lora.path.is_file():
            raise InvalidRequest("loras", f"The LoRA {lora.path} is missing.")
        # A model of two experts gets a LoRA in both, or in the one that the file's name tells.
        targets = {"transformer": _LOW_NOISE, "transformer_2": _HIGH_NOISE}
        for part, other in targets.items():
            if getattr(self._main, part, None) is None or other in lora.path.stem:
                continue
            extra = {"load_into_transformer_2": True} if part == "transformer_2" else {}
            try:
                self._main.load_lora_weights(
                    lora.path.parent, weight_name=lora.path.name, adapter_name=name, **extra
                )
            except Exception as error:  # two libraries raise what they like
                raise InvalidRequest(
                    "loras", f"The LoRA {lora.path} does not fit {self._spec.model_id}: {error}"
                ) from None
        if name not in {
            each for parts in self._main.get_list_adapters().values() for each in parts
        }:
            raise InvalidRequest(
                "loras", f"The LoRA {lora.path} has no weights for {self._spec.model_id}."
            )
        return name

    def _pipeline(self, task: GenerationTask) -> Any:
        """The diffusers pipeline of a task, made of the modules that are already loaded."""
        pipeline_class = resolve(self._spec.pipelines[task])
        name = pipeline_class.__name__
        if name not in self._pipelines:
            config = {key: self._main.config[key] for key in self.shared_config}
            pipeline = pipeline_class(**self._main.components, **config)
            pipeline.set_progress_bar_config(disable=True)
            self._pipelines[name] = pipeline
        return self._pipelines[name]

    def _refuse_non_finite(self, tensor: torch.Tensor, stage: str, dtype: torch.dtype) -> None:
        refuse_non_finite(tensor, folder=self._folder, stage=stage, dtype=dtype)


def as_pixels(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Floats of 0 to 1, rounded as diffusers rounds for PIL images."""
    pixels: NDArray[np.uint8] = (values * 255).round().astype(np.uint8)
    return pixels


class AdaptedPipeline:
    """A pipeline whose call is not quite as segments expect it; else it is the pipeline itself."""

    def __init__(self, pipeline: Any) -> None:
        object.__setattr__(self, "pipeline", pipeline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipeline, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.pipeline, name, value)

    def __call__(self, **call: Any) -> Any:
        return self.pipeline(**call)


def schedule_for(num_steps: int, strength: float) -> tuple[int, int]:
    """The shortest schedule of which `num_steps` are left at this strength, and their first one.

    Diffusers leaves out the steps before the strength's part of a schedule is reached.
    """
    schedule = num_steps
    while True:
        first = int(max(schedule - min(schedule * strength, schedule), 0))
        if schedule - first == num_steps:
            return schedule, first
        schedule += 1
