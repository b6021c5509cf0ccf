"""FLUX.2: text to image, and images from reference images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer

from engine.errors import CheckpointError
from engine.media import read_reference
from engine.pipelines.base import Conditioning, Embeddings, PipelineCall, Placement, quiet_loading
from engine.pipelines.runner import AdaptedPipeline, DiffusersRunner, as_pixels
from engine.registry import ModelSpec
from engine.types import GenerationRequest


class Flux2Runner(DiffusersRunner):
    """A loaded FLUX.2 checkpoint; one pipeline does both tasks."""

    @classmethod
    def load(cls, spec: ModelSpec, folder: Path, placement: Placement) -> Self:
        """Load the checkpoint; CheckpointError where that is impossible.

        Of the processor that it names prompts need only the tokenizer: they hold no pictures.
        """
        runner = super().load(spec, folder, placement)
        with quiet_loading():
            try:
                tokenizer = AutoTokenizer.from_pretrained(
                    folder / "tokenizer", local_files_only=True
                )
            except (OSError, ValueError) as error:
                raise CheckpointError(
                    folder / "tokenizer", f"cannot be loaded ({error}). Copy it anew."
                ) from error
        runner._main.tokenizer = tokenizer
        return runner

    @classmethod
    def load_parts(cls, folder: Path, placement: Placement) -> Mapping[str, Any]:
        """No processor: it would need a library for pictures."""
        return {"tokenizer": None}

    @torch.no_grad()
    def encode(self, text: str) -> Embeddings:
        """Run the language model on one prompt; three layers' states side by side (1, S, D)."""
        embeds, _ = self._main.encode_prompt(
            prompt=text,
            max_sequence_length=self._spec.max_sequence_length,
            device=self.placement.device,
            text_encoder_out_layers=self._text_layers,
        )
        return {"prompt_embeds": embeds}

    @property
    def _text_layers(self) -> tuple[int, ...]:
        """The layers that are read: a quarter, a half and three quarters up the language model."""
        num_layers = self._main.text_encoder.config.text_config.num_hidden_layers
        return tuple(num_layers * part // 4 for part in (1, 2, 3))

    def prepare(self, request: GenerationRequest, conditioning: Conditioning) -> PipelineCall:
        """Put the arguments of the pipeline together."""
        settings = request.settings
        arguments: dict[str, Any] = {
            "height": settings.height,
            "width": settings.width,
            "num_inference_steps": settings.num_inference_steps,
            "guidance_scale": settings.guidance_scale,
            "max_sequence_length": self._spec.max_sequence_length,
        } | conditioning.arguments()
        if request.references:
            arguments["image"] = [
                read_reference(path, width=settings.width, height=settings.height)
                for path in request.references
            ]
        pipeline = _PackedLatents(self._main, width=settings.width, height=settings.height)
        return PipelineCall(pipeline=pipeline, arguments=arguments)

    @torch.no_grad()
    def decode(self, latents: torch.Tensor, request: GenerationRequest) -> NDArray[np.uint8]:
        """Turn packed latents (1, S, C) into one RGB frame (1, H, W, 3), as the pipeline ends."""
        self._refuse_non_finite(latents, "denoise", self.placement.dtype)
        main, vae, settings = self._main, self._main.vae, request.settings
        latents = _unpacked(main, latents, width=settings.width, height=settings.height)
        mean = vae.bn.running_mean.view(1, -1, 1, 1).to(latents)
        std = torch.sqrt(vae.bn.running_var.view(1, -1, 1, 1) + vae.config.batch_norm_eps)
        latents = main._unpatchify_latents(latents * std.to(latents) + mean)
        picture = vae.decode(latents.to(self.placement.device, vae.dtype), return_dict=False)[0]
        self._refuse_non_finite(picture, "decode", vae.dtype)
        return as_pixels(main.image_processor.postprocess(picture, output_type="np"))


class _PackedLatents(AdaptedPipeline):
    """Takes latents as it gives them, packed (B, S, C); the pipeline itself takes (B, C, H, W)."""

    def __init__(self, pipeline: Any, *, width: int, height: int) -> None:
        super().__init__(pipeline)
        object.__setattr__(self, "_size", {"width": width, "height": height})

    def __call__(self, *, latents: torch.Tensor | None = None, **call: Any) -> Any:
        if latents is not None:
            call["latents"] = _unpacked(self.pipeline, latents, **self._size)
        return self.pipeline(**call)


def _unpacked(pipeline: Any, latents: torch.Tensor, *, width: int, height: int) -> torch.Tensor:
    """(B, S, C) as (B, C, rows, columns): one token for each 2 x 2 of the VAE's latents."""
    stride = pipeline.vae_scale_factor * 2
    rows, columns = height // stride, width // stride
    return latents.transpose(1, 2).reshape(len(latents), -1, rows, columns)
