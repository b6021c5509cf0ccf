"""The parts of the published models, as their configurations have them.

They are the defaults of diffusers' classes, or what stands in its conversion scripts and in the
configurations of the text encoders' authors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffusers
import transformers
from diffusers.pipelines.ltx2 import LTX2TextConnectors
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder

Inputs = dict[str, Any]


@dataclass
class Model:
    """How to make a model's parts, and what its transformer and its VAE are called with."""

    parts: dict[str, Callable[[], Any]]
    denoise: Callable[[Any, Any], Inputs]
    latents: Callable[[Any], tuple[int, ...]]
    float32: frozenset[str] = frozenset()


def umt5() -> Any:
    return transformers.UMT5EncoderModel(
        transformers.UMT5Config(
            vocab_size=256384, d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64
        )
    )


def t5() -> Any:
    return transformers.T5EncoderModel(
        transformers.T5Config(
            vocab_size=32128,
            d_model=4096,
            d_kv=64,
            d_ff=10240,
            num_layers=24,
            num_heads=64,
            feed_forward_proj="gated-gelu",
        )
    )


def clip_large(kind: Any = transformers.CLIPTextModel) -> Any:
    return kind(
        transformers.CLIPTextConfig(
            hidden_size=768,
            intermediate_size=3072,
            num_hidden_layers=12,
            num_attention_heads=12,
            projection_dim=768,
        )
    )


def clip_giant() -> Any:
    return transformers.CLIPTextModelWithProjection(
        transformers.CLIPTextConfig(
            hidden_size=1280,
            intermediate_size=5120,
            num_hidden_layers=32,
            num_attention_heads=20,
            projection_dim=1280,
        )
    )


def llama() -> Any:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=128256,
            hidden_size=4096,
            intermediate_size=14336,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=8,
        )
    )


def mistral3() -> Any:
    text = transformers.MistralConfig(
        vocab_size=131072,
        hidden_size=5120,
        intermediate_size=32768,
        num_hidden_layers=40,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
    )
    vision = transformers.PixtralVisionConfig(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16
    )
    config = transformers.Mistral3Config(text_config=text, vision_config=vision)
    return transformers.Mistral3ForConditionalGeneration(config)


def gemma3() -> Any:
    text = transformers.Gemma3TextConfig(
        vocab_size=262208,
        hidden_size=3840,
        intermediate_size=15360,
        num_hidden_layers=48,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=256,
    )
    vision = transformers.SiglipVisionConfig(
        hidden_size=1152,
        intermediate_size=4304,
        num_hidden_layers=27,
        num_attention_heads=16,
        image_size=896,
        patch_size=14,
    )
    config = transformers.Gemma3Config(text_config=text, vision_config=vision)
    return transformers.Gemma3ForConditionalGeneration(config)


def qwen_vl() -> Any:
    # The defaults are those of the 7B model, but for what stands here.
    text = {
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    }
    vision = {"hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584}
    config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision)
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def wan(*, experts: int = 1, vae: Inputs | None = None, **changes: Any) -> Model:
    def denoiser() -> Any:
        kind = diffusers.WanTransformer3DModel
        if "vace_layers" in changes:
            kind = diffusers.WanVACETransformer3DModel
        return kind(**changes)

    parts: dict[str, Callable[[], Any]] = {"text_encoder": umt5, "transformer": denoiser}
    if experts == 2:
        parts["transformer_2"] = denoiser
    parts["vae"] = lambda: diffusers.AutoencoderKLWan(**vae or {})

    def latents(settings: Any) -> tuple[int, ...]:
        stride = 16 if vae else 8
        frames = (settings.num_frames - 1) // 4 + 1
        return (1, 48 if vae else 16, frames, settings.height // stride, settings.width // stride)

    def denoise(settings: Any, module: Any) -> Inputs:
        _, _, frames, height, width = latents(settings)
        inputs = {
            "hidden_states": (1, module.config.in_channels, frames, height, width),
            "timestep": (1,),
            "encoder_hidden_states": (1, 512, 4096),
        }
        if vae:
            inputs["timestep"] = (1, frames * height * width // 4)
        if "vace_layers" in changes:
            inputs["control_hidden_states"] = (1, 96, frames, height, width)
        return inputs

    return Model(parts=parts, denoise=denoise, latents=latents, float32=frozenset({"vae"}))


WAN_22_VAE: Inputs = {
    "base_dim": 160,
    "decoder_base_dim": 256,
    "z_dim": 48,
    "latents_mean": [0.0] * 48,
    "latents_std": [1.0] * 48,
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_spatial": 16,
}
WAN_1_3B: Inputs = {"num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 30}
PICTURE_VAE: Inputs = {
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (128, 256, 512, 512),
    "layers_per_block": 2,
    "latent_channels": 16,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
}


def _tokens(settings: Any) -> int:
    return int(settings.height // 16 * (settings.width // 16))


def _picture_latents(channels: int, stride: int = 8) -> Callable[[Any], tuple[int, ...]]:
    return lambda settings: (1, channels, settings.height // stride, settings.width // stride)


def flux(*, pictures: int = 1, in_channels: int = 64) -> Model:
    def denoise(settings: Any, module: Any) -> Inputs:
        tokens = pictures * _tokens(settings)
        return {
            "hidden_states": (1, tokens, in_channels),
            "encoder_hidden_states": (1, 512, 4096),
            "pooled_projections": (1, 768),
            "timestep": (1,),
            "guidance": (1,),
            "txt_ids": (512, 3),
            "img_ids": (tokens, 3),
        }

    return Model(
        parts={
            "text_encoder": clip_large,
            "text_encoder_2": t5,
            "transformer": lambda: diffusers.FluxTransformer2DModel(
                in_channels=in_channels, out_channels=64, guidance_embeds=True
            ),
            "vae": lambda: diffusers.AutoencoderKL(**PICTURE_VAE),
        },
        denoise=denoise,
        latents=_picture_latents(16),
    )


def flux2() -> Model:
    def denoise(settings: Any, module: Any) -> Inputs:
        tokens = _tokens(settings)
        return {
            "hidden_states": (1, tokens, 128),
            "encoder_hidden_states": (1, 512, 15360),
            "timestep": (1,),
            "guidance": (1,),
            "txt_ids": (1, 512, 4),
            "img_ids": (1, tokens, 4),
        }

    return Model(
        parts={
            "text_encoder": mistral3,
            "transformer": diffusers.Flux2Transformer2DModel,
            "vae": diffusers.AutoencoderKLFlux2,
        },
        denoise=denoise,
        latents=_picture_latents(32),
    )


def hidream() -> Model:
    def denoise(settings: Any, module: Any) -> Inputs:
        return {
            "hidden_states": (1, 16, settings.height // 8, settings.width // 8),
            "timesteps": (1,),
            "encoder_hidden_states_t5": (1, 128, 4096),
            "encoder_hidden_states_llama3": (32, 1, 128, 4096),
            "pooled_embeds": (1, 2048),
        }

    return Model(
        parts={
            "text_encoder": lambda: clip_large(transformers.CLIPTextModelWithProjection),
            "text_encoder_2": clip_giant,
            "text_encoder_3": t5,
            "text_encoder_4": llama,
            "transformer": lambda: diffusers.HiDreamImageTransformer2DModel(
                patch_size=2,
                in_channels=16,
                caption_channels=[4096, 4096],
                axes_dims_rope=(64, 32, 32),
                llama_layers=[*range(32), *[31] * 16],
            ),
            "vae": lambda: diffusers.AutoencoderKL(**PICTURE_VAE),
        },
        denoise=denoise,
        latents=_picture_latents(16),
    )


def qwen_image() -> Model:
    def denoise(settings: Any, module: Any) -> Inputs:
        return {
            "hidden_states": (1, _tokens(settings), 64),
            "encoder_hidden_states": (1, 1024, 3584),
            "timestep": (1,),
            "img_shapes": [[(1, settings.height // 16, settings.width // 16)]],
        }

    return Model(
        parts={
            "text_encoder": qwen_vl,
            "transformer": diffusers.QwenImageTransformer2DModel,
            "vae": diffusers.AutoencoderKLQwenImage,
        },
        denoise=denoise,
        latents=lambda settings: (1, 16, 1, settings.height // 8, settings.width // 8),
    )


def ltx2() -> Model:
    def latents(settings: Any) -> tuple[int, ...]:
        frames = (settings.num_frames - 1) // 8 + 1
        return (1, 128, frames, settings.height // 32, settings.width // 32)

    def denoise(settings: Any, module: Any) -> Inputs:
        _, _, frames, height, width = latents(settings)
        sound = round(settings.num_frames / settings.fps * 25)
        return {
            "hidden_states": (1, frames * height * width, 128),
            "audio_hidden_states": (1, sound, 128),
            "encoder_hidden_states": (1, 1024, 3840),
            "audio_encoder_hidden_states": (1, 1024, 3840),
            "timestep": (1, 1),
            "num_frames": frames,
            "height": height,
            "width": width,
            "audio_num_frames": sound,
        }

    return Model(
        parts={
            "text_encoder": gemma3,
            "connectors": LTX2TextConnectors,
            "transformer": diffusers.LTX2VideoTransformer3DModel,
            "vae": lambda: diffusers.AutoencoderKLLTX2Video(decoder_causal=False),
            "audio_vae": diffusers.AutoencoderKLLTX2Audio,
            "vocoder": LTX2Vocoder,
        },
        denoise=denoise,
        latents=latents,
    )


MODELS: dict[str, Callable[[], Model]] = {
    "wan2.2-t2v-a14b": lambda: wan(experts=2),
    "wan2.2-i2v-a14b": lambda: wan(experts=2, in_channels=36),
    "wan2.2-ti2v-5b": lambda: wan(
        vae=WAN_22_VAE,
        in_channels=48,
        out_channels=48,
        num_attention_heads=24,
        ffn_dim=14336,
        num_layers=30,
    ),
    "wan2.1-t2v-1.3b": lambda: wan(**WAN_1_3B),
    "wan2.1-vace-1.3b": lambda: wan(**WAN_1_3B, vace_layers=list(range(0, 30, 2))),
    "wan2.1-vace-14b": lambda: wan(vace_layers=list(range(0, 40, 5))),
    "ltx-2": ltx2,
    "flux.1-dev": flux,
    "flux.1-kontext-dev": lambda: flux(pictures=2),
    "flux.1-fill-dev": lambda: flux(in_channels=384),
    "flux.2-dev": flux2,
    "hidream-i1-full": hidream,
    "hidream-i1-dev": hidream,
    "hidream-i1-fast": hidream,
    "qwen-image": qwen_image,
}
