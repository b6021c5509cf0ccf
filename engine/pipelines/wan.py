"""The Wan family: text to video and image through WanPipeline, image to video beside it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.media import read_reference
from engine.pipelines.base import Conditioning, Embeddings, PipelineCall
from engine.pipelines.runner import DiffusersRunner, as_pixels
from engine.pipelines.wan_blocks import FastTransformer, product_dtype
from engine.pipelines.wan_decoder import fast_decoder
from engine.types import GenerationRequest, GenerationTask


class WanRunner(DiffusersRunner):
    """A loaded Wan checkpoint: one transformer, or one expert each for high and low noise.

    The VAE stays in float32, as Wan's documentation of diffusers advises: half precision bands.
    """

    float32_parts = ("vae",)
    shared_config = ("boundary_ratio", "expand_timesteps")

    @torch.no_grad()
    def encode(self, text: str) -> Embeddings:
        """Run the text encoder on one prompt; the pipeline treats a negative one alike."""
        embeds: torch.Tensor = self._main.encode_prompt(
            prompt=text,
            do_classifier_free_guidance=False,
            max_sequence_length=self._spec.max_sequence_length,
            device=self.placement.device,
        )[0]
        return {"prompt_embeds": embeds}

    def prepare(self, request: GenerationRequest, conditioning: Conditioning) -> PipelineCall:
        """Choose the task's pipeline and put its arguments together."""
        settings = request.settings
        arguments: dict[str, Any] = {
            "height": settings.height,
            "width": settings.width,
            "num_frames": settings.num_frames,
            "num_inference_steps": settings.num_inference_steps,
            "guidance_scale": settings.guidance_scale,
            "max_sequence_length": self._spec.max_sequence_length,
        }
        if self._main.config.boundary_ratio is not None:
            share = self._spec.low_noise_guidance
            arguments["guidance_scale_2"] = settings.guidance_scale * share
        images = [
            read_reference(path, width=settings.width, height=settings.height)
            for path in request.references
        ]
        if settings.task is GenerationTask.I2V:
            arguments["image"] = images[0]
            if request.last_frame is not None:
                arguments["last_image"] = read_reference(
                    request.last_frame,
                    field="last_frame",
                    width=settings.width,
                    height=settings.height,
                )
        elif settings.task is GenerationTask.R2V:
            arguments["reference_images"] = [images]
        return PipelineCall(
            pipeline=self._pipeline(settings.task), arguments=arguments | conditioning.arguments()
        )

    @torch.no_grad()
    def decode(self, latents: torch.Tensor, request: GenerationRequest) -> NDArray[np.uint8]:
        """Turn latents (1, C, F, H, W) into RGB frames (F, H, W, 3).

        References stand as latent frames before the clip. The operations and their order are those
        at the end of WanPipeline's call, which alone keeps the frames equal to it bit for bit.
        """
        if request.settings.task is GenerationTask.R2V:
            latents = latents[:, :, len(request.references) :]
        frames: NDArray[np.uint8] = self._decode(self._main.vae, latents)[0]
        return frames

    @property
    def is_fast(self) -> bool:
        """Whether there is a faster way that equals diffusers up to rounding only."""
        return self.placement.fast_math and FastTransformer.can_stand_in_for(self._main)

    def fast_forwards(self) -> AbstractContextManager[None]:
        """Compute the transformer's forwards the fast way while the context is open."""
        return self._fast_transformer.installed()

    @torch.no_grad()
    def decode_fast(self, latents: torch.Tensor) -> NDArray[np.uint8]:
        """Turn latents (B, C, F, H, W) into RGB frames (B, F, H, W, 3) the fast way."""
        return self._decode(self._fast_vae, latents)

    @cached_property
    def _fast_transformer(self) -> FastTransformer:
        with torch.no_grad():
            return FastTransformer(self._main.transformer, dtype=product_dtype())

    @cached_property
    def _fast_vae(self) -> Any:
        # Convolutions in float32 are as fast as they get where there are no units for bfloat16.
        vae = self._main.vae
        return fast_decoder(vae) if product_dtype() is torch.bfloat16 else vae

    def _decode(self, vae: Any, latents: torch.Tensor) -> NDArray[np.uint8]:
        self._refuse_non_finite(latents, "denoise", self.placement.dtype)
        latents = latents.to(self.placement.device, dtype=vae.dtype)
        channels = (1, vae.config.z_dim, 1, 1, 1)
        mean = torch.tensor(vae.config.latents_mean).view(channels).to(latents)
        inverse_std = 1.0 / torch.tensor(vae.config.latents_std).view(channels).to(latents)
        video = vae.decode(latents / inverse_std + mean, return_dict=False)[0]
        self._refuse_non_finite(video, "decode", vae.dtype)
        # Floats of 0 to 1, shape (B, F, H, W, 3).
        return as_pixels(self._main.video_processor.postprocess_video(video, output_type="np"))
