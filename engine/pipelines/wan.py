"""The Wan family: text to video and image through WanPipeline, image to video beside it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.media import read_reference
from engine.pipelines.base import (
    Conditioning,
    PipelineCall,
    Placement,
    load_pipeline,
    refuse_non_finite,
    resolve,
)
from engine.pipelines.wan_blocks import FastTransformer, product_dtype
from engine.pipelines.wan_decoder import fast_decoder
from engine.registry import ModelSpec
from engine.types import GenerationRequest, GenerationTask


class WanRunner:
    """A loaded Wan checkpoint; its pipelines share one set of modules."""

    def __init__(self, spec: ModelSpec, folder: Path, placement: Placement, pipeline: Any) -> None:
        self.placement = placement
        self.solver = type(pipeline.scheduler).__name__
        self._spec = spec
        self._folder = folder
        self._pipelines = {type(pipeline).__name__: pipeline}
        self._main = pipeline

    @classmethod
    def load(cls, spec: ModelSpec, folder: Path, placement: Placement) -> WanRunner:
        """Load the checkpoint; CheckpointError where that is impossible."""
        return cls(spec, folder, placement, load_pipeline(spec, folder, placement))

    @torch.no_grad()
    def encode(self, text: str) -> torch.Tensor:
        """Run the text encoder on one prompt; the pipeline treats a negative one alike."""
        embeds: torch.Tensor = self._main.encode_prompt(
            prompt=text,
            do_classifier_free_guidance=False,
            max_sequence_length=self._spec.max_sequence_length,
            device=self.placement.device,
        )[0]
        return embeds

    def prepare(self, request: GenerationRequest, conditioning: Conditioning) -> PipelineCall:
        """Choose the task's pipeline and put its arguments together."""
        settings = request.settings
        arguments: dict[str, Any] = {
            "prompt_embeds": conditioning.prompt_embeds,
            "negative_prompt_embeds": conditioning.negative_prompt_embeds,
            "height": settings.height,
            "width": settings.width,
            "num_frames": settings.num_frames,
            "num_inference_steps": settings.num_inference_steps,
            "guidance_scale": settings.guidance_scale,
            "max_sequence_length": self._spec.max_sequence_length,
        }
        if settings.task is GenerationTask.I2V:
            arguments["image"] = read_reference(
                request.references[0], width=settings.width, height=settings.height
            )
        return PipelineCall(pipeline=self._pipeline(settings.task), arguments=arguments)

    @torch.no_grad()
    def decode(self, latents: torch.Tensor) -> NDArray[np.uint8]:
        """Turn latents (1, C, F, H, W) into RGB frames (F, H, W, 3).

        The operations and their order are those at the end of WanPipeline's call, which alone
        keeps the frames equal to it bit for bit.
        """
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
        refuse_non_finite(latents, folder=self._folder, stage="denoise", dtype=self.placement.dtype)
        latents = latents.to(self.placement.device, dtype=vae.dtype)
        channels = (1, vae.config.z_dim, 1, 1, 1)
        mean = torch.tensor(vae.config.latents_mean).view(channels).to(latents)
        inverse_std = 1.0 / torch.tensor(vae.config.latents_std).view(channels).to(latents)
        video = vae.decode(latents / inverse_std + mean, return_dict=False)[0]
        refuse_non_finite(video, folder=self._folder, stage="decode", dtype=vae.dtype)
        # Floats of 0 to 1, shape (B, F, H, W, 3); rounded as diffusers rounds for PIL images.
        frames = self._main.video_processor.postprocess_video(video, output_type="np")
        pixels: NDArray[np.uint8] = (frames * 255).round().astype(np.uint8)
        return pixels

    def _pipeline(self, task: GenerationTask) -> Any:
        """The diffusers pipeline of a task, made of the modules that are already loaded."""
        pipeline_class = resolve(self._spec.pipelines[task])
        name = pipeline_class.__name__
        if name not in self._pipelines:
            pipeline = pipeline_class(
                **self._main.components,
                boundary_ratio=self._main.config.boundary_ratio,
                expand_timesteps=self._main.config.expand_timesteps,
            )
            pipeline.set_progress_bar_config(disable=True)
            self._pipelines[name] = pipeline
        return self._pipelines[name]
