"""Wan 2.1 and 2.2, by the Wan team (arXiv:2503.20314): clips from text, pictures and references.

Sizes, steps and guidance are those of the authors' configurations
(https://github.com/Wan-Video/Wan2.2/tree/main/wan/configs), architectures those of diffusers'
conversion (https://github.com/huggingface/diffusers/blob/main/scripts/convert_wan_to_diffusers.py).
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from engine.costs import CostModel
from engine.models.spec import ModelSpec, Size, SizeRule, TaskInputs
from engine.types import GenerationTask

_480P: Final = (
    Size(width=832, height=480, label="16:9"),
    Size(width=480, height=832, label="9:16"),
)
_720P: Final = (
    Size(width=1280, height=720, label="16:9"),
    Size(width=720, height=1280, label="9:16"),
)
# Operations per output pixel of the VAEs, counted on their decoders.
_DECODE_FLOPS_21: Final = 8.7e6
_DECODE_FLOPS_22: Final = 18.6e6

_COST_14B: Final = CostModel(
    num_layers=40,
    dim=5120,
    ffn_dim=13824,
    text_tokens=512,
    has_token_timesteps=False,
    token_stride=(4, 16, 16),
    decode_flops=_DECODE_FLOPS_21,
)
_COST_1_3B: Final = CostModel(
    num_layers=30,
    dim=1536,
    ffn_dim=8960,
    text_tokens=512,
    has_token_timesteps=False,
    token_stride=(4, 16, 16),
    decode_flops=_DECODE_FLOPS_21,
)

_A14B: Final = ModelSpec(
    model_id="wan2.2-t2v-a14b",
    label="Wan 2.2 T2V A14B",
    weights="wan2.2-t2v-a14b",
    runner="engine.pipelines.wan:WanRunner",
    pipelines=MappingProxyType({GenerationTask.T2V: "diffusers:WanPipeline"}),
    sizes=(
        *_720P,
        Size(width=832, height=480, label="16:9 480p"),
        Size(width=480, height=832, label="9:16 480p"),
    ),
    size_rule=SizeRule(multiple=16, min_side=256, max_side=1280, max_pixels=1280 * 720),
    frame_stride=4,
    min_frames=5,
    default_frames=81,
    max_frames=81,
    fps=16,
    default_steps=40,
    default_guidance=4.0,
    # The low-noise expert's guidance is 3.0 where the high-noise one's is 4.0.
    low_noise_guidance=0.75,
    max_sequence_length=512,
    cost=_COST_14B,
    licence="Apache-2.0",
    licence_url="https://github.com/Wan-Video/Wan2.2/blob/main/LICENSE.txt",
    hub_id="Wan-AI/Wan2.2-T2V-A14B-Diffusers",
)

_I2V_A14B: Final = replace(
    _A14B,
    model_id="wan2.2-i2v-a14b",
    label="Wan 2.2 I2V A14B",
    weights="wan2.2-i2v-a14b",
    hub_id="Wan-AI/Wan2.2-I2V-A14B-Diffusers",
    pipelines=MappingProxyType({GenerationTask.I2V: "diffusers:WanImageToVideoPipeline"}),
    inputs=MappingProxyType(
        {GenerationTask.I2V: TaskInputs(min_references=1, max_references=1, takes_last_frame=True)}
    ),
    default_guidance=3.5,
    low_noise_guidance=1.0,
)

_TI2V_5B: Final = replace(
    _A14B,
    model_id="wan2.2-ti2v-5b",
    label="Wan 2.2 TI2V 5B",
    weights="wan2.2-ti2v-5b",
    hub_id="Wan-AI/Wan2.2-TI2V-5B-Diffusers",
    pipelines=MappingProxyType(
        {
            GenerationTask.T2V: "diffusers:WanPipeline",
            GenerationTask.I2V: "diffusers:WanImageToVideoPipeline",
        }
    ),
    sizes=(
        Size(width=1280, height=704, label="16:9"),
        Size(width=704, height=1280, label="9:16"),
        Size(width=832, height=480, label="16:9 480p"),
        Size(width=480, height=832, label="9:16 480p"),
    ),
    size_rule=SizeRule(multiple=32, min_side=256, max_side=1280, max_pixels=1280 * 704),
    default_frames=121,
    max_frames=121,
    fps=24,
    default_steps=50,
    default_guidance=5.0,
    low_noise_guidance=1.0,
    cost=CostModel(
        num_layers=30,
        dim=3072,
        ffn_dim=14336,
        text_tokens=512,
        has_token_timesteps=True,
        token_stride=(4, 32, 32),
        decode_flops=_DECODE_FLOPS_22,
    ),
)

_T2V_1_3B: Final = replace(
    _A14B,
    model_id="wan2.1-t2v-1.3b",
    label="Wan 2.1 T2V 1.3B",
    weights="wan2.1-t2v-1.3b",
    hub_id="Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
    licence_url="https://huggingface.co/Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
    sizes=_480P,
    size_rule=SizeRule(multiple=16, min_side=256, max_side=832, max_pixels=832 * 480),
    default_steps=50,
    default_guidance=5.0,
    low_noise_guidance=1.0,
    cost=_COST_1_3B,
)

# VACE adds blocks of the same kind for what it is given: 15 to 30, or 8 to 40. Each reference is
# one more latent frame, which the price leaves out. Its pipeline renders one clip at a time.
_VACE_1_3B: Final = replace(
    _T2V_1_3B,
    model_id="wan2.1-vace-1.3b",
    label="Wan 2.1 VACE 1.3B",
    weights="wan2.1-vace-1.3b",
    hub_id="Wan-AI/Wan2.1-VACE-1.3B-diffusers",
    licence_url="https://huggingface.co/Wan-AI/Wan2.1-VACE-1.3B-diffusers",
    pipelines=MappingProxyType({GenerationTask.R2V: "diffusers:WanVACEPipeline"}),
    inputs=MappingProxyType(
        {GenerationTask.R2V: TaskInputs(min_references=1, max_references=3, takes_batches=False)}
    ),
    cost=replace(_COST_1_3B, num_layers=45),
)

_VACE_14B: Final = replace(
    _VACE_1_3B,
    model_id="wan2.1-vace-14b",
    label="Wan 2.1 VACE 14B",
    weights="wan2.1-vace-14b",
    hub_id="Wan-AI/Wan2.1-VACE-14B-diffusers",
    licence_url="https://huggingface.co/Wan-AI/Wan2.1-VACE-14B-diffusers",
    sizes=_A14B.sizes,
    size_rule=_A14B.size_rule,
    cost=replace(_COST_14B, num_layers=48),
)

MODELS: Final = (_A14B, _I2V_A14B, _TI2V_5B, _T2V_1_3B, _VACE_1_3B, _VACE_14B)
