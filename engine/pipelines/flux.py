"""The FLUX.1 family: text to image, image to image, editing (Kontext) and painting in (Fill)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from diffusers.utils.torch_utils import randn_tensor
from numpy.typing import NDArray

from engine.caching.wrapping import replaced
from engine.media import read_mask, read_reference
from engine.pipelines.base import Conditioning, Embeddings, PipelineCall
from engine.pipelines.runner import AdaptedPipeline, DiffusersRunner, as_pixels, schedule_for
from engine.types import GenerationRequest, GenerationTask


class FluxRunner(DiffusersRunner):
    """A loaded FLUX.1 checkpoint, of any of its kinds."""

    @torch.no_grad()
    def encode(self, text: str) -> Embeddings:
        """Run both text encoders on one prompt; embeddings (1, S, D) and pooled ones (1, P)."""
        embeds, pooled, _ = self._main.encode_prompt(
            prompt=text,
            max_sequence_length=self._spec.max_sequence_length,
            device=self.placement.device,
        )
        return {"prompt_embeds": embeds, "pooled_prompt_embeds": pooled}

    def prepare(self, request: GenerationRequest, conditioning: Conditioning) -> PipelineCall:
        """Choose the task's pipeline and put its arguments together."""
        settings = request.settings
        width, height = settings.width, settings.height
        pipeline = self._pipeline(settings.task)
        arguments: dict[str, Any] = {
            "height": height,
            "width": width,
            "num_inference_steps": settings.num_inference_steps,
            "guidance_scale": settings.guidance_scale,
            "max_sequence_length": self._spec.max_sequence_length,
        } | conditioning.arguments()
        if settings.task is not GenerationTask.I2I:
            return PipelineCall(pipeline=pipeline, arguments=arguments)
        arguments["image"] = read_reference(request.references[0], width=width, height=height)
        inputs = self._spec.inputs_of(settings.task)
        if inputs.default_strength is None:
            # Kontext chooses a size of this area itself; the picture comes in it already.
            arguments |= {"max_area": width * height, "_auto_resize": False}
            return PipelineCall(pipeline=pipeline, arguments=arguments)
        strength = inputs.default_strength if request.strength is None else request.strength
        schedule, first_step = schedule_for(settings.num_inference_steps, strength)
        arguments |= {"num_inference_steps": schedule, "strength": strength}
        adapted: AdaptedPipeline = _FromPicture(pipeline)
        if request.mask is not None:
            arguments["mask_image"] = read_mask(request.mask, width=width, height=height)
            adapted = _IntoPicture(pipeline, seed=request.seed)
        return PipelineCall(pipeline=adapted, arguments=arguments, first_step=first_step)

    @torch.no_grad()
    def decode(self, latents: torch.Tensor, request: GenerationRequest) -> NDArray[np.uint8]:
        """Turn packed latents (1, S, C) into one RGB frame (1, H, W, 3), as the pipelines end."""
        self._refuse_non_finite(latents, "denoise", self.placement.dtype)
        main, vae, settings = self._main, self._main.vae, request.settings
        latents = main._unpack_latents(
            latents, settings.height, settings.width, main.vae_scale_factor
        )
        latents = latents / vae.config.scaling_factor + vae.config.shift_factor
        picture = vae.decode(latents.to(self.placement.device, vae.dtype), return_dict=False)[0]
        self._refuse_non_finite(picture, "decode", vae.dtype)
        return as_pixels(main.image_processor.postprocess(picture, output_type="np"))


class _FromPicture(AdaptedPipeline):
    """Image to image: the schedule that segments show begins where the strength says already."""

    def __call__(self, **call: Any) -> Any:
        def get_timesteps(*_: Any) -> tuple[torch.Tensor, int]:
            self.scheduler.set_begin_index(0)
            return self.scheduler.timesteps, len(self.scheduler.timesteps)

        with replaced(self.pipeline, get_timesteps=get_timesteps):
            return self.pipeline(**call)


class _IntoPicture(_FromPicture):
    """Painting in: the part that stays is encoded with the same draws in every segment.

    The pipeline draws for the picture's posterior, for the noise, and then for this part's.
    """

    def __init__(self, pipeline: Any, *, seed: int) -> None:
        super().__init__(pipeline)
        object.__setattr__(self, "_seed", seed)

    def __call__(self, **call: Any) -> Any:
        prepare = self.pipeline.prepare_mask_latents

        def prepare_mask_latents(mask: torch.Tensor, masked: torch.Tensor, *rest: Any) -> Any:
            *before, _ = rest
            _, channels, _, height, width, dtype, device = before
            scale = self.vae_scale_factor
            generator = torch.Generator("cpu").manual_seed(self._seed)
            for _ in range(2):
                shape = (1, channels, height // scale, width // scale)
                randn_tensor(shape, generator=generator, device=device, dtype=dtype)
            return prepare(mask, masked, *before, generator)

        with replaced(self.pipeline, prepare_mask_latents=prepare_mask_latents):
            return super().__call__(**call)
