"""A small random checkpoint in the built-in model's layout, for tests of the machinery.

Random weights answer to a prompt only faintly, so nothing about quality can be tested with them.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch
from diffusers import (
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    WanPipeline,
    WanTransformer3DModel,
)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

from engine.tiny.vocabulary import ATTRIBUTES

_LATENT_CHANNELS = 8
_TEXT_DIM = 32
_VOCABULARY = 768
_SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>")


@cache
def random_model_dir() -> Path:
    """A folder for ADLOOM_MODEL_DIR: holds `tiny/` with random weights; gone when Python ends."""
    folder = Path(tempfile.mkdtemp(prefix="adloom-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_checkpoint(folder / "tiny")
    return folder


def write_checkpoint(folder: Path, *, seed: int = 0, num_layers: int = 2) -> None:
    """Write a whole Wan checkpoint (under 1 MB) with the strides of the built-in model.

    More layers make a slower one, for tests that act while a render is under way.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pipeline = WanPipeline(
            tokenizer=_tokenizer(),
            text_encoder=_text_encoder(),
            vae=_vae(),
            scheduler=FlowMatchEulerDiscreteScheduler(shift=2.0),
            transformer=_transformer(num_layers),
            expand_timesteps=True,
        )
    pipeline.save_pretrained(folder)


def _tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE: the built-in model's words are short, nothing is out of vocabulary."""
    words = [
        f" {word}"
        for values in ATTRIBUTES.values()
        for phrases in values.values()
        for word in phrases
    ]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=list(_SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(words, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


def _text_encoder() -> UMT5EncoderModel:
    config = UMT5Config(
        vocab_size=_VOCABULARY, d_model=_TEXT_DIM, d_kv=8, d_ff=48, num_layers=1, num_heads=4
    )
    return UMT5EncoderModel(config).eval()


def _vae() -> AutoencoderKLWan:
    return AutoencoderKLWan(
        base_dim=8,
        decoder_base_dim=8,
        z_dim=_LATENT_CHANNELS,
        dim_mult=[1, 1, 1],
        num_res_blocks=0,
        temperal_downsample=[True, True],
        is_residual=True,
        in_channels=48,
        out_channels=48,
        patch_size=4,
        scale_factor_temporal=4,
        scale_factor_spatial=16,
        latents_mean=[0.0] * _LATENT_CHANNELS,
        latents_std=[1.0] * _LATENT_CHANNELS,
    ).eval()


def _transformer(num_layers: int) -> WanTransformer3DModel:
    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=_LATENT_CHANNELS,
        out_channels=_LATENT_CHANNELS,
        text_dim=_TEXT_DIM,
        freq_dim=32,
        ffn_dim=64,
        num_layers=num_layers,
    ).eval()
