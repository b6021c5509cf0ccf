"""Qwen-Image: text to image."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.pipelines.base import Conditioning, Embeddings, PipelineCall
from engine.pipelines.runner import DiffusersRunner, as_pixels
from engine.types import GenerationRequest


class QwenImageRunner(DiffusersRunner):
    """A loaded Qwen-Image checkpoint."""

    @torch.no_grad()
    def encode(self, text: str) -> Embeddings:
        """Run the language model on one prompt; embeddings (1, S, D), S as long as the prompt."""
        embeds, _ = self._main.encode_prompt(
            prompt=text,
            max_sequence_length=self._spec.max_sequence_length,
            device=self.placement.device,
        )
        return {"prompt_embeds": embeds}

    def prepare(self, request: GenerationRequest, conditioning: Conditioning) -> PipelineCall:
        """Put the arguments of the pipeline together."""
        settings = request.settings
        arguments: dict[str, Any] = {
            "height": settings.height,
            "width": settings.width,
            "num_inference_steps": settings.num_inference_steps,
            "true_cfg_scale": settings.guidance_scale,
            "max_sequence_length": self._spec.max_sequence_length,
        }
        return PipelineCall(
            pipeline=self._pipeline(settings.task),
            arguments=arguments | conditioning.arguments(),
        )

    @torch.no_grad()
    def decode(self, latents: torch.Tensor, request: GenerationRequest) -> NDArray[np.uint8]:
        """Turn packed latents (1, S, C) into one RGB frame (1, H, W, 3), as the pipeline ends."""
        self._refuse_non_finite(latents, "denoise", self.placement.dtype)
        main, vae, settings = self._main, self._main.vae, request.settings
        latents = main._unpack_latents(
            latents, settings.height, settings.width, main.vae_scale_factor
        ).to(self.placement.device, vae.dtype)
        channels = (1, vae.config.z_dim, 1, 1, 1)
        mean = torch.tensor(vae.config.latents_mean).view(channels).to(latents)
        inverse_std = 1.0 / torch.tensor(vae.config.latents_std).view(channels).to(latents)
        picture = vae.decode(latents / inverse_std + mean, return_dict=False)[0][:, :, 0]
        self._refuse_non_finite(picture, "decode", vae.dtype)
        return as_pixels(main.image_processor.postprocess(picture, output_type="np"))
