"""HiDream-I1: text to image with four text encoders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer, LlamaForCausalLM

from engine.errors import CheckpointError
from engine.pipelines.base import Conditioning, Embeddings, PipelineCall, Placement, quiet_loading
from engine.pipelines.runner import DiffusersRunner, as_pixels
from engine.registry import ModelSpec
from engine.types import GenerationRequest

# The published checkpoints leave these two out: they are those of Llama 3.1 8B Instruct.
_ENCODER, _TOKENIZER = "text_encoder_4", "tokenizer_4"


class HiDreamRunner(DiffusersRunner):
    """A loaded HiDream-I1 checkpoint with the language model beside it."""

    def __init__(self, spec: ModelSpec, folder: Path, placement: Placement, pipeline: Any) -> None:
        super().__init__(spec, folder, placement, pipeline)
        # The pipeline holds the area of the training as a constant, the transformer as a setting.
        pipeline.default_sample_size = pipeline.transformer.config.max_resolution[0]

    @classmethod
    def load_parts(cls, folder: Path, placement: Placement) -> Mapping[str, Any]:
        """The language model and its tokenizer; CheckpointError says where they belong."""
        for name in (_ENCODER, _TOKENIZER):
            if not (folder / name).is_dir():
                raise CheckpointError(
                    folder / name,
                    "is missing. HiDream-I1 reads prompts with Llama 3.1 8B Instruct: put the"
                    f" model into {_ENCODER}/ and its tokenizer into {_TOKENIZER}/.",
                )
        with quiet_loading():
            try:
                encoder = LlamaForCausalLM.from_pretrained(
                    folder / _ENCODER,
                    dtype=placement.dtype,
                    # The pipeline asks for attentions, which only this way of attention gives.
                    attn_implementation="eager",
                    local_files_only=True,
                )
                tokenizer = AutoTokenizer.from_pretrained(
                    folder / _TOKENIZER, local_files_only=True
                )
            except (OSError, ValueError, RuntimeError) as error:
                raise CheckpointError(
                    folder / _ENCODER, f"cannot be loaded ({error}). Copy it anew."
                ) from error
        return {_ENCODER: encoder, _TOKENIZER: tokenizer}

    @torch.no_grad()
    def encode(self, text: str) -> Embeddings:
        """Run all encoders on one prompt: T5 (1, S, D), Llama (1, layers, S, D), CLIP (1, P)."""
        t5, _, llama, _, pooled, _ = self._main.encode_prompt(
            prompt=text,
            do_classifier_free_guidance=False,
            max_sequence_length=self._spec.max_sequence_length,
            device=self.placement.device,
        )
        return {
            "prompt_embeds_t5": t5,
            "prompt_embeds_llama3": llama.transpose(0, 1),
            "pooled_prompt_embeds": pooled,
        }

    def prepare(self, request: GenerationRequest, conditioning: Conditioning) -> PipelineCall:
        """Put the arguments of the pipeline together; it wants Llama's layers before the rows."""
        settings = request.settings
        embeddings = {
            name: rows.transpose(0, 1) if name.endswith("llama3") else rows
            for name, rows in conditioning.arguments().items()
        }
        arguments: dict[str, Any] = {
            "height": settings.height,
            "width": settings.width,
            "num_inference_steps": settings.num_inference_steps,
            "guidance_scale": settings.guidance_scale,
            "max_sequence_length": self._spec.max_sequence_length,
        }
        return PipelineCall(
            pipeline=self._pipeline(settings.task), arguments=arguments | embeddings
        )

    @torch.no_grad()
    def decode(self, latents: torch.Tensor, request: GenerationRequest) -> NDArray[np.uint8]:
        """Turn latents (1, C, H, W) into one RGB frame (1, H, W, 3), as the pipeline ends."""
        self._refuse_non_finite(latents, "denoise", self.placement.dtype)
        vae = self._main.vae
        latents = latents / vae.config.scaling_factor + vae.config.shift_factor
        picture = vae.decode(latents.to(self.placement.device, vae.dtype), return_dict=False)[0]
        self._refuse_non_finite(picture, "decode", vae.dtype)
        return as_pixels(self._main.image_processor.postprocess(picture, output_type="np"))
