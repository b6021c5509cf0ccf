"""What the engine asks of a model family: load, encode, prepare, decode; and what they share.

Tensor shapes: B batch, S text tokens, D text width, C latent channels, F frames, H and W pixels
(in latents: H and W divided by the VAE's stride, F counted in latent frames).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self

import diffusers
import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors import safe_open

from engine.checkpoint import check_checkpoint
from engine.config import EngineConfig
from engine.errors import CheckpointError, ConfigError, NonFiniteOutput, OutOfMemory
from engine.memory import MemoryPlan
from engine.pipelines.placing import place, quantization
from engine.registry import ModelSpec
from engine.types import Audio, GenerationRequest, Lora


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a model lives and in which precision its transformer computes.

    With `fast_math` the runner may offer a way that equals diffusers up to rounding only. `memory`
    says which parts wait in host memory and what else is done to fit; None moves all to the device.
    """

    device: torch.device
    dtype: torch.dtype
    fast_math: bool = False
    memory: MemoryPlan | None = None

    @classmethod
    def of(cls, config: EngineConfig) -> Self:
        """Resolve `auto`; ConfigError for a device that this machine does not have."""
        name = config.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(name)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError("ADLOOM_DEVICE", f"{name!r} cannot be used here: {reason}") from None
        dtype = config.dtype
        if dtype == "auto":
            dtype = "float32" if device.type == "cpu" else "bfloat16"
        return cls(device=device, dtype=getattr(torch, dtype), fast_math=config.fast_math)


# What text encoders made of prompts, by its name in the pipeline's call; a row for each prompt.
Embeddings = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Conditioning:
    """What prompts became, and negative ones only where guidance needs them."""

    positive: Embeddings
    negative: Embeddings | None = None

    def row(self, index: int) -> Conditioning:
        """The conditioning of one row of the batch."""
        negative = self.negative
        return Conditioning(
            positive={name: rows[index : index + 1] for name, rows in self.positive.items()},
            negative=negative
            and {name: rows[index : index + 1] for name, rows in negative.items()},
        )

    def arguments(self) -> dict[str, torch.Tensor]:
        """All embeddings by their names in the pipeline's call."""
        negative = self.negative or {}
        return self.positive | {f"negative_{name}": rows for name, rows in negative.items()}


def stack_embeddings(rows: Sequence[Embeddings]) -> Embeddings:
    """The rows of one batch."""
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


def mean_embeddings(all_of: Sequence[Embeddings]) -> Embeddings:
    """The mean of several prompts' embeddings; masks let through what any of them lets through."""
    if len(all_of) == 1:
        return all_of[0]
    stacked = {name: torch.stack([each[name] for each in all_of]) for name in all_of[0]}
    return {
        name: values.mean(dim=0) if values.is_floating_point() else values.amax(dim=0)
        for name, values in stacked.items()
    }


@dataclass(frozen=True, kw_only=True)
class PipelineCall:
    """A diffusers pipeline and the arguments of its `__call__`, but for noise and callbacks.

    Any way to run the denoising loop (whole, or a segment of it) starts from this. The loop begins
    at `first_step` of the schedule.
    """

    pipeline: Any
    arguments: dict[str, Any]
    first_step: int = 0


class ModelRunner(Protocol):
    """One loaded model. `solver` is the class name of its noise scheduler."""

    placement: Placement
    solver: str

    @classmethod
    def load(cls, spec: ModelSpec, folder: Path, placement: Placement) -> ModelRunner:
        """Load the checkpoint; CheckpointError where that is impossible."""
        ...

    @property
    def parts(self) -> dict[str, Any]:
        """The modules and other parts, by their names in the pipeline."""
        ...

    def encode(self, text: str) -> Embeddings:
        """Run the text encoders on one prompt, positive or negative."""
        ...

    def use_loras(self, loras: Sequence[Lora]) -> None:
        """Apply these LoRAs from now on and no others; InvalidRequest where one does not fit."""
        ...

    def prepare(self, request: GenerationRequest, conditioning: Conditioning) -> PipelineCall:
        """Choose the task's pipeline and put its arguments together, reference images included.

        The conditioning may hold several prompts of requests that differ in nothing else.
        """
        ...

    def decode(self, latents: torch.Tensor, request: GenerationRequest) -> NDArray[np.uint8]:
        """Turn the latents of one row into RGB frames (F, H, W, 3)."""
        ...

    def decode_audio(self, latents: torch.Tensor, request: GenerationRequest) -> Audio | None:
        """Turn the latents of one row into sound; None for a model without any."""
        ...

    def by_token(self, latents: torch.Tensor, request: GenerationRequest) -> torch.Tensor:
        """The picture's latents of one row as (1, C, ...), a place behind C for each token."""
        ...

    @property
    def is_fast(self) -> bool:
        """Whether there is a faster way that equals diffusers up to rounding only."""
        ...

    def fast_forwards(self) -> AbstractContextManager[None]:
        """Compute the transformer's forwards the fast way while the context is open."""
        ...

    def decode_fast(self, latents: torch.Tensor) -> NDArray[np.uint8]:
        """Turn latents (B, C, F, H, W) into RGB frames (B, F, H, W, 3) the fast way."""
        ...


def resolve(name: str) -> Any:
    """The object that "module:Name" names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def load_pipeline(
    spec: ModelSpec,
    folder: Path,
    placement: Placement,
    *,
    float32_parts: Sequence[str] = (),
    parts: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Load the diffusers pipeline of the model's first task, from local files only.

    `float32_parts` keep that precision on every device; `parts` were loaded already.
    """
    check_checkpoint(folder, spec.pipeline_classes)
    with quiet_loading():
        # All classes are imported here, where their advice about optional packages is not heard.
        pipeline_class, *_ = [resolve(name) for name in spec.pipelines.values()]
        try:
            pipeline = pipeline_class.from_pretrained(
                folder,
                dtype={"default": placement.dtype} | dict.fromkeys(float32_parts, torch.float32),
                use_safetensors=True,
                local_files_only=True,
                **quantization(placement.memory, pipeline_class),
                **parts,
            )
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # the loaders of four libraries raise what they like
            raise CheckpointError(
                folder, f"cannot be loaded ({type(error).__name__}: {error}). Copy it anew."
            ) from error
    _refuse_partial_weights(pipeline, folder)
    place(pipeline, placement.device, placement.memory)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def refuse_non_finite(
    tensor: torch.Tensor, *, folder: Path, stage: str, dtype: torch.dtype
) -> None:
    """Raise NonFiniteOutput where a stage computed NaN or infinity."""
    if not bool(torch.isfinite(tensor).all()):
        raise NonFiniteOutput(folder, stage=stage, dtype=str(dtype).removeprefix("torch."))


@contextmanager
def memory_errors(device: torch.device) -> Iterator[None]:
    """Turn each library's way to say "no memory" into OutOfMemory."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfMemory(str(device), str(error).partition("\n")[0]) from error
    except RuntimeError as error:
        # torch's CPU allocator raises a plain RuntimeError; its name is in the message.
        if "DefaultCPUAllocator" not in str(error):
            raise
        raise OutOfMemory(str(device), str(error).partition("\n")[0]) from error


def _refuse_partial_weights(pipeline: Any, folder: Path) -> None:
    """Raise CheckpointError where a part has weights that its files do not hold.

    The loaders fill such weights with random values or none and only log it.
    """
    for name, component in pipeline.components.items():
        if not isinstance(component, torch.nn.Module):
            continue
        stored: set[str] = set()
        for path in (folder / name).glob("*.safetensors"):
            with safe_open(path, framework="pt") as file:
                stored.update(file.keys())
        weights = component.state_dict()
        # Tied weights are stored once, under one of their names.
        loaded = {tensor.data_ptr() for key, tensor in weights.items() if key in stored}
        lacking = [
            key
            for key, tensor in weights.items()
            if key not in stored and tensor.data_ptr() not in loaded
        ]
        if isinstance(component, transformers.PreTrainedModel):
            # Some weights stand in the files under the names of an older version.
            renamed = len(stored - weights.keys())
            untied = {weights[key].data_ptr(): key for key in lacking}
            lacking = list(untied.values())[renamed:]
        if lacking:
            raise CheckpointError(
                folder / name,
                f"lacks {len(lacking)} of {len(weights)} weights, {lacking[0]} among them."
                " Copy it anew.",
            )


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Keep the libraries' own progress bars and advice off the terminal while a model loads."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    diffusers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        transformers.logging.enable_progress_bar()
        diffusers.utils.logging.enable_progress_bar()
