"""LTX-2: text and image to video with sound, both denoised together."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.caching.wrapping import replaced
from engine.media import read_reference
from engine.pipelines.base import Conditioning, Embeddings, PipelineCall
from engine.pipelines.runner import AdaptedPipeline, DiffusersRunner, as_pixels
from engine.types import Audio, GenerationRequest, GenerationTask


class LTX2Runner(DiffusersRunner):
    """A loaded LTX-2 checkpoint.

    The latents of a run are those of picture and sound in one row of numbers (B, N): the
    picture's packed ones (S, C), then the sound's.
    """

    @torch.no_grad()
    def encode(self, text: str) -> Embeddings:
        """Run the language model on one prompt: all its layers (1, S, D) and the mask (1, S)."""
        embeds, mask, _, _ = self._main.encode_prompt(
            prompt=text,
            do_classifier_free_guidance=False,
            max_sequence_length=self._spec.max_sequence_length,
            device=self.placement.device,
        )
        return {"prompt_embeds": embeds, "prompt_attention_mask": mask}

    def prepare(self, request: GenerationRequest, conditioning: Conditioning) -> PipelineCall:
        """Choose the task's pipeline and put its arguments together."""
        settings = request.settings
        arguments: dict[str, Any] = {
            "height": settings.height,
            "width": settings.width,
            "num_frames": settings.num_frames,
            "frame_rate": float(settings.fps),
            "num_inference_steps": settings.num_inference_steps,
            "guidance_scale": settings.guidance_scale,
            "max_sequence_length": self._spec.max_sequence_length,
        } | conditioning.arguments()
        if not self._main.transformer.config.perturbed_attn:
            # Without attention that can be left out this guidance is a forward for nothing.
            arguments |= {"stg_scale": 0.0, "audio_stg_scale": 0.0}
        if settings.task is GenerationTask.I2V:
            arguments["image"] = read_reference(
                request.references[0], width=settings.width, height=settings.height
            )
        pipeline = _WithSound(self._pipeline(settings.task), self._picture_shape(request))
        return PipelineCall(pipeline=pipeline, arguments=arguments)

    @torch.no_grad()
    def decode(self, latents: torch.Tensor, request: GenerationRequest) -> NDArray[np.uint8]:
        """Turn a row of latents into RGB frames (F, H, W, 3), as the pipelines end."""
        self._refuse_non_finite(latents, "denoise", self.placement.dtype)
        main, vae, settings = self._main, self._main.vae, request.settings
        picture, _ = _parted(latents, self._picture_shape(request))
        stride = main.vae_spatial_compression_ratio
        video_latents = main._unpack_latents(
            picture,
            (settings.num_frames - 1) // main.vae_temporal_compression_ratio + 1,
            settings.height // stride,
            settings.width // stride,
            main.transformer_spatial_patch_size,
            main.transformer_temporal_patch_size,
        ).to(self.placement.device, self.placement.dtype)
        video_latents = main._denormalize_latents(
            video_latents, vae.latents_mean, vae.latents_std, vae.config.scaling_factor
        )
        video = vae.decode(video_latents.to(vae.dtype), None, return_dict=False)[0]
        self._refuse_non_finite(video, "decode", vae.dtype)
        (frames,) = main.video_processor.postprocess_video(video, output_type="np")
        return as_pixels(frames)

    @torch.no_grad()
    def decode_audio(self, latents: torch.Tensor, request: GenerationRequest) -> Audio | None:
        """Turn a row of latents into sound, as the pipelines end."""
        main, audio_vae = self._main, self._main.audio_vae
        _, sound = _parted(latents, self._picture_shape(request))
        mel_bins = audio_vae.config.mel_bins // main.audio_vae_mel_compression_ratio
        sound = sound.view(1, -1, audio_vae.config.latent_channels * mel_bins)
        sound = main._denormalize_audio_latents(
            sound.to(self.placement.device), audio_vae.latents_mean, audio_vae.latents_std
        )
        sound = main._unpack_audio_latents(sound, sound.shape[1], num_mel_bins=mel_bins)
        spectrogram = audio_vae.decode(sound.to(audio_vae.dtype), return_dict=False)[0]
        waves = main.vocoder(spectrogram)[0].float()
        self._refuse_non_finite(waves, "decode", audio_vae.dtype)
        samples: NDArray[np.float32] = waves.clamp(-1, 1).T.cpu().numpy()
        return Audio(samples=samples, rate=main.vocoder.config.output_sampling_rate)

    def by_token(self, latents: torch.Tensor, request: GenerationRequest) -> torch.Tensor:
        """The picture's part of the row as (1, C, S)."""
        return _parted(latents, self._picture_shape(request))[0].transpose(1, 2)

    def _picture_shape(self, request: GenerationRequest) -> tuple[int, int]:
        """Tokens and channels of the picture's packed latents."""
        main, settings = self._main, request.settings
        config = main.transformer.config
        frames = (settings.num_frames - 1) // main.vae_temporal_compression_ratio + 1
        side = main.vae_spatial_compression_ratio * config.patch_size
        tokens = frames // config.patch_size_t
        return (
            tokens * (settings.height // side) * (settings.width // side),
            config.in_channels * config.patch_size_t * config.patch_size**2,
        )


class _WithSound(AdaptedPipeline):
    """Takes and gives the latents of picture and sound in one row of numbers.

    What the pipelines themselves take and give is scaled, which would round it. So they prepare
    latents as ever, and where a run is taken up its own stand in their place.
    """

    def __init__(self, pipeline: Any, picture_shape: tuple[int, int]) -> None:
        super().__init__(pipeline)
        object.__setattr__(self, "_picture_shape", picture_shape)

    def __call__(
        self,
        *,
        latents: torch.Tensor | None = None,
        callback_on_step_end: Any = None,
        **call: Any,
    ) -> tuple[torch.Tensor]:
        given: dict[str, torch.Tensor] = {}
        if latents is not None:
            given["latents"], given["audio_latents"] = _parted(latents, self._picture_shape)
        held: dict[str, torch.Tensor] = {}
        prepare_picture = self.pipeline.prepare_latents
        prepare_sound = self.pipeline.prepare_audio_latents

        def prepare_latents(*args: Any, **kwargs: Any) -> Any:
            prepared = prepare_picture(*args, **kwargs)
            # With a first frame there is a mask of it, too.
            picture, *mask = prepared if isinstance(prepared, tuple) else (prepared,)
            held["latents"] = given["latents"].to(picture) if given else picture
            return (held["latents"], *mask) if mask else held["latents"]

        def prepare_audio_latents(*args: Any, **kwargs: Any) -> torch.Tensor:
            prepared: torch.Tensor = prepare_sound(*args, **kwargs)
            if given:
                prepared = given["audio_latents"].view_as(prepared).to(prepared)
            held["audio_latents"] = prepared
            return prepared

        def on_step_end(pipeline: Any, index: int, timestep: Any, tensors: Any) -> Any:
            held.update(tensors)
            if callback_on_step_end is None:
                return tensors
            return callback_on_step_end(pipeline, index, timestep, tensors)

        with replaced(
            self.pipeline,
            prepare_latents=prepare_latents,
            prepare_audio_latents=prepare_audio_latents,
            _callback_tensor_inputs=["latents", "audio_latents"],
        ):
            self.pipeline(
                callback_on_step_end=on_step_end,
                callback_on_step_end_tensor_inputs=["latents", "audio_latents"],
                **call,
            )
        parts = [held[name].flatten(1) for name in ("latents", "audio_latents")]
        return (torch.cat(parts, dim=1),)


def _parted(
    latents: torch.Tensor, picture_shape: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The picture's latents (B, S, C), and the sound's as a row of numbers."""
    length = picture_shape[0] * picture_shape[1]
    return latents[:, :length].reshape(-1, *picture_shape), latents[:, length:]
