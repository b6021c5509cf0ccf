"""Small random checkpoints of every model family, made of the real classes of all their parts.

The configurations have the shape of the published ones with a few channels each, so loading and
rendering run the real code. Random weights say nothing about quality.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from tokenizers import pre_tokenizers

from engine import registry
from engine.registry import ModelSpec, Size

LETTERS = "abcdefghijklmnopqrstuvwxyz,.0123456789'"
WIDTH = 32
FLOW: dict[str, Any] = {"prediction_type": "flow_prediction", "use_flow_sigmas": True}
# What the language and picture models inside large text encoders have in common.
LANGUAGE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": WIDTH,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}
VISION: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


@cache
def small_model_dir() -> Path:
    """A folder for `EngineConfig.model_dir`; gone when Python ends."""
    folder = Path(tempfile.mkdtemp(prefix="adloom-small-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def small_model(model_id: str) -> ModelSpec:
    """The model's row with the size of its small checkpoint, written on first use."""
    spec = registry._MODELS[model_id]
    write, side = CHECKPOINTS[model_id]
    folder = small_model_dir() / spec.weights
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        write(folder)
    return replace(spec, sizes=(Size(width=side, height=side, label="1:1"),), size_rule=None)


def _t5_tokenizer() -> Any:
    pieces = ["<pad>", "</s>", "<unk>", "▁", *LETTERS]
    return transformers.T5TokenizerFast(vocab=[(piece, -2.0) for piece in pieces], extra_ids=0)


def _clip_tokenizer() -> Any:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"{letter}</w>" for letter in alphabet)]
    words += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: place for place, word in enumerate(words)}
    return transformers.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)


def _clip(kind: type, *, max_length: int = 77) -> Any:
    config = transformers.CLIPTextConfig(
        vocab_size=514,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=max_length,
        projection_dim=WIDTH,
        bos_token_id=512,
        eos_token_id=513,
    )
    return kind(config).eval()


def _t5(kind: type, config: type) -> Any:
    return kind(
        config(vocab_size=64, d_model=WIDTH, d_kv=8, d_ff=32, num_layers=1, num_heads=4)
    ).eval()


def _umt5() -> Any:
    return _t5(transformers.UMT5EncoderModel, transformers.UMT5Config)


def _picture_vae() -> Any:
    return diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(8, 8, 8, 8),
        latent_channels=4,
        norm_num_groups=4,
        scaling_factor=0.3611,
        shift_factor=0.1159,
        use_quant_conv=False,
        use_post_quant_conv=False,
    ).eval()


def _wan_vae(**changes: Any) -> Any:
    config: dict[str, Any] = {
        "base_dim": 8,
        "z_dim": 4,
        "dim_mult": [1, 1, 1, 1],
        "num_res_blocks": 1,
        "temperal_downsample": [False, True, True],
        "latents_mean": [0.1, -0.2, 0.3, 0.0],
        "latents_std": [1.1, 0.9, 1.3, 0.7],
    }
    return diffusers.AutoencoderKLWan(**config | changes).eval()


def _wan_transformer(kind: type = diffusers.WanTransformer3DModel, **changes: Any) -> Any:
    config: dict[str, Any] = {
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "in_channels": 4,
        "out_channels": 4,
        "text_dim": WIDTH,
        "freq_dim": 32,
        "ffn_dim": 32,
        "num_layers": 2,
    }
    return kind(**config | changes).eval()


def _write_wan(folder: Path, kind: type = diffusers.WanPipeline, **changes: Any) -> None:
    parts: dict[str, Any] = {
        "tokenizer": _t5_tokenizer(),
        "text_encoder": _umt5(),
        "vae": _wan_vae(),
        "scheduler": diffusers.UniPCMultistepScheduler(**FLOW, flow_shift=5.0),
        "transformer": _wan_transformer(),
    }
    kind(**parts | changes).save_pretrained(folder)


def _write_wan_t2v_a14b(folder: Path) -> None:
    _write_wan(folder, transformer_2=_wan_transformer(), boundary_ratio=0.875)


def _write_wan_i2v_a14b(folder: Path) -> None:
    # Latents, the mask of the given frames, and their latents.
    experts = [_wan_transformer(in_channels=12) for _ in range(2)]
    _write_wan(
        folder,
        diffusers.WanImageToVideoPipeline,
        transformer=experts[0],
        transformer_2=experts[1],
        boundary_ratio=0.9,
    )


def _write_wan_ti2v_5b(folder: Path) -> None:
    vae = _wan_vae(
        decoder_base_dim=8,
        is_residual=True,
        in_channels=12,
        out_channels=12,
        patch_size=2,
        scale_factor_spatial=16,
    )
    _write_wan(folder, vae=vae, expand_timesteps=True)


def _write_wan_vace(folder: Path) -> None:
    transformer = _wan_transformer(
        diffusers.WanVACETransformer3DModel, vace_layers=[0, 1], vace_in_channels=2 * 4 + 64
    )
    _write_wan(folder, diffusers.WanVACEPipeline, transformer=transformer)


def _flow_euler() -> Any:
    return diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True)


def _write_flux(
    folder: Path, kind: type = diffusers.FluxPipeline, *, in_channels: int = 16
) -> None:
    transformer = diffusers.FluxTransformer2DModel(
        in_channels=in_channels,
        out_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=WIDTH,
        pooled_projection_dim=WIDTH,
        guidance_embeds=True,
        axes_dims_rope=(4, 4, 8),
    )
    kind(
        scheduler=_flow_euler(),
        vae=_picture_vae(),
        text_encoder=_clip(transformers.CLIPTextModel),
        tokenizer=_clip_tokenizer(),
        text_encoder_2=_t5(transformers.T5EncoderModel, transformers.T5Config),
        tokenizer_2=_t5_tokenizer(),
        transformer=transformer.eval(),
    ).save_pretrained(folder)


def _write_kontext(folder: Path) -> None:
    _write_flux(folder, diffusers.FluxKontextPipeline)


def _write_fill(folder: Path) -> None:
    # Latents, those of what stays, and the mask of 16 x 16 pixels a token.
    _write_flux(folder, diffusers.FluxFillPipeline, in_channels=16 + 16 + 256)


def _language_tokenizer(*special: str, **options: Any) -> Any:
    words = ["<unk>", "<s>", "</s>", "<pad>", *special, "▁", *LETTERS]
    vocabulary = {word: place for place, word in enumerate(words)}
    return transformers.LlamaTokenizerFast(
        vocab=vocabulary, merges=[], pad_token="<pad>", **options
    )


def _write_flux2(folder: Path) -> None:
    special = ("[IMG]", "[IMG_BREAK]", "[IMG_END]", "[INST]", "[/INST]")
    tokenizer = _language_tokenizer(*special, additional_special_tokens=list(special))
    text = transformers.MistralConfig(num_hidden_layers=4, **LANGUAGE)
    vision = transformers.PixtralVisionConfig(**VISION)
    encoder = transformers.Mistral3ForConditionalGeneration(
        transformers.Mistral3Config(text_config=text, vision_config=vision, image_token_index=4)
    )
    vae = diffusers.AutoencoderKLFlux2(
        block_out_channels=(8, 8, 8, 8), latent_channels=8, norm_num_groups=4
    )
    vae.bn.running_mean.uniform_(-0.5, 0.5)
    vae.bn.running_var.uniform_(0.5, 1.5)
    transformer = diffusers.Flux2Transformer2DModel(
        in_channels=32,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=3 * 16,
        timestep_guidance_channels=32,
        axes_dims_rope=(4, 4, 4, 4),
    )
    tokenizer.chat_template = (
        "{% for message in messages %}{% for part in message['content'] %}"
        "[INST]{{ part['text'] }}[/INST]{% endfor %}{% endfor %}"
    )
    diffusers.Flux2Pipeline(
        scheduler=_flow_euler(),
        vae=vae.eval(),
        text_encoder=encoder.eval(),
        tokenizer=tokenizer,
        transformer=transformer.eval(),
    ).save_pretrained(folder)
    # The published checkpoint names a processor of pictures too; its prompts need only this part.
    index = json.loads((folder / "model_index.json").read_text())
    index["tokenizer"] = ["transformers", "PixtralProcessor"]
    (folder / "model_index.json").write_text(json.dumps(index))


def _write_hidream(folder: Path, scheduler: Any = None) -> None:
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=64,
            hidden_size=WIDTH,
            intermediate_size=WIDTH,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
        )
    ).eval()
    transformer = diffusers.HiDreamImageTransformer2DModel(
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        caption_channels=[WIDTH, WIDTH],
        text_emb_dim=2 * WIDTH,
        axes_dims_rope=(8, 4, 4),
        max_resolution=(16, 16),
        llama_layers=[0, 1],
    )
    diffusers.HiDreamImagePipeline(
        scheduler=scheduler or diffusers.UniPCMultistepScheduler(**FLOW, flow_shift=3.0),
        vae=_picture_vae(),
        text_encoder=_clip(transformers.CLIPTextModelWithProjection, max_length=248),
        tokenizer=_clip_tokenizer(),
        text_encoder_2=_clip(transformers.CLIPTextModelWithProjection, max_length=248),
        tokenizer_2=_clip_tokenizer(),
        text_encoder_3=_t5(transformers.T5EncoderModel, transformers.T5Config),
        tokenizer_3=_t5_tokenizer(),
        text_encoder_4=llama,
        tokenizer_4=_language_tokenizer(),
        transformer=transformer.eval(),
    ).save_pretrained(folder)
    # The published checkpoints leave the language model to whoever downloads them.
    index = json.loads((folder / "model_index.json").read_text())
    index |= {"text_encoder_4": [None, None], "tokenizer_4": [None, None]}
    (folder / "model_index.json").write_text(json.dumps(index))


def _write_hidream_dev(folder: Path) -> None:
    _write_hidream(folder, diffusers.FlowMatchLCMScheduler(shift=3.0))


def _write_ltx2(folder: Path) -> None:
    words = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *LETTERS]
    tokenizer = transformers.GemmaTokenizer(
        vocab={word: place for place, word in enumerate(words)}, merges=[]
    )
    text = transformers.Gemma3TextConfig(num_hidden_layers=2, **LANGUAGE)
    vision = transformers.SiglipVisionConfig(**VISION)
    encoder = transformers.Gemma3ForConditionalGeneration(
        transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    )
    vae = diffusers.AutoencoderKLLTX2Video(
        latent_channels=4,
        block_out_channels=(8, 16, 32, 64),
        decoder_block_out_channels=(8, 16, 32),
        layers_per_block=(1, 1, 1, 1, 1),
        decoder_layers_per_block=(1, 1, 1, 1),
        decoder_causal=False,
        spatial_compression_ratio=32,
        temporal_compression_ratio=8,
    )
    audio_vae = diffusers.AutoencoderKLLTX2Audio(
        base_channels=4, num_res_blocks=1, resolution=32, latent_channels=2, mel_bins=8
    )
    for part in (vae, audio_vae):
        part.latents_mean.uniform_(-0.5, 0.5)
        part.latents_std.uniform_(0.5, 1.5)
    connectors = diffusers.pipelines.ltx2.LTX2TextConnectors(
        caption_channels=16,
        text_proj_in_factor=3,
        video_connector_num_attention_heads=2,
        video_connector_attention_head_dim=8,
        video_connector_num_layers=1,
        video_connector_num_learnable_registers=None,
        audio_connector_num_attention_heads=2,
        audio_connector_attention_head_dim=8,
        audio_connector_num_layers=1,
        audio_connector_num_learnable_registers=None,
    )
    transformer = diffusers.LTX2VideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=16,
        cross_attention_dim=32,
        audio_in_channels=4,
        audio_out_channels=4,
        audio_num_attention_heads=2,
        audio_attention_head_dim=8,
        audio_cross_attention_dim=16,
        num_layers=2,
        caption_channels=16,
    )
    vocoder = diffusers.pipelines.ltx2.vocoder.LTX2Vocoder(
        in_channels=16,
        hidden_channels=32,
        upsample_kernel_sizes=[16, 15, 8, 4, 4],
        upsample_factors=[6, 5, 2, 2, 2],
        resnet_kernel_sizes=[3],
        resnet_dilations=[[1, 3, 5]],
    )
    diffusers.LTX2Pipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05, shift_terminal=0.1
        ),
        vae=vae.eval(),
        audio_vae=audio_vae.eval(),
        text_encoder=encoder.eval(),
        tokenizer=tokenizer,
        connectors=connectors.eval(),
        transformer=transformer.eval(),
        vocoder=vocoder.eval(),
    ).save_pretrained(folder)


def _write_qwen_image(folder: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    text = {
        "vocab_size": 300,
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]},
    }
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": WIDTH,
        "num_heads": 2,
        "out_hidden_size": WIDTH,
    }
    encoder = transformers.Qwen2_5_VLForConditionalGeneration(
        transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision)
    )
    vae = diffusers.AutoencoderKLQwenImage(
        base_dim=8,
        z_dim=4,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        latents_mean=[0.1, -0.2, 0.3, 0.0],
        latents_std=[1.1, 0.9, 1.3, 0.7],
    )
    transformer = diffusers.QwenImageTransformer2DModel(
        in_channels=16,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=WIDTH,
        axes_dims_rope=(8, 4, 4),
    )
    diffusers.QwenImagePipeline(
        scheduler=_flow_euler(),
        vae=vae.eval(),
        text_encoder=encoder.eval(),
        tokenizer=transformers.Qwen2Tokenizer(
            vocab={letter: place for place, letter in enumerate([*alphabet, "<|endoftext|>"])},
            merges=[],
        ),
        transformer=transformer.eval(),
    ).save_pretrained(folder)


# What writes a model's small checkpoint, and the side of its pictures in pixels.
CHECKPOINTS: dict[str, tuple[Callable[[Path], None], int]] = {
    "wan2.2-t2v-a14b": (_write_wan_t2v_a14b, 64),
    "wan2.2-i2v-a14b": (_write_wan_i2v_a14b, 64),
    "wan2.2-ti2v-5b": (_write_wan_ti2v_5b, 64),
    "wan2.1-t2v-1.3b": (_write_wan, 64),
    "wan2.1-vace-1.3b": (_write_wan_vace, 64),
    "wan2.1-vace-14b": (_write_wan_vace, 64),
    "ltx-2": (_write_ltx2, 64),
    "flux.1-dev": (_write_flux, 64),
    "flux.1-kontext-dev": (_write_kontext, 64),
    "flux.1-fill-dev": (_write_fill, 64),
    "flux.2-dev": (_write_flux2, 64),
    "hidream-i1-full": (_write_hidream, 128),
    "hidream-i1-dev": (_write_hidream_dev, 128),
    "hidream-i1-fast": (_write_hidream_dev, 128),
    "qwen-image": (_write_qwen_image, 64),
}
