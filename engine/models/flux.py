"""FLUX.1 and FLUX.2, by Black Forest Labs: pictures from text and from pictures.

Steps and guidance are the defaults of diffusers' pipelines
(https://huggingface.co/docs/diffusers/main/api/pipelines/flux), the sizes of Kontext those that
its pipeline prefers.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from engine.costs import JointCostModel
from engine.models.spec import Guidance, ModelSpec, Size, SizeRule, TaskInputs
from engine.types import GenerationTask

_COST: Final = JointCostModel(
    num_blocks=57,
    dim=3072,
    token_matrices=12,
    text_tokens=512,
    token_stride=(1, 16, 16),
    decode_flops=9.99e6,
)

_FLUX1: Final = ModelSpec(
    model_id="flux.1-dev",
    label="FLUX.1 dev",
    weights="flux.1-dev",
    runner="engine.pipelines.flux:FluxRunner",
    pipelines=MappingProxyType(
        {
            GenerationTask.T2I: "diffusers:FluxPipeline",
            GenerationTask.I2I: "diffusers:FluxImg2ImgPipeline",
        }
    ),
    inputs=MappingProxyType(
        {GenerationTask.I2I: TaskInputs(min_references=1, max_references=1, default_strength=0.6)}
    ),
    sizes=(
        Size(width=1024, height=1024, label="1:1"),
        Size(width=1344, height=768, label="16:9"),
        Size(width=768, height=1344, label="9:16"),
        Size(width=896, height=1120, label="4:5"),
    ),
    size_rule=SizeRule(multiple=16, min_side=256, max_side=2048, max_pixels=2_000_000),
    frame_stride=1,
    min_frames=1,
    default_frames=1,
    max_frames=1,
    fps=1,
    default_steps=28,
    default_guidance=3.5,
    guidance=Guidance.EMBEDDED,
    max_sequence_length=512,
    tokenizer="tokenizer_2",
    cost=_COST,
    licence="FLUX.1 [dev] Non-Commercial License",
    licence_url="https://huggingface.co/black-forest-labs/FLUX.1-dev/blob/main/LICENSE.md",
    is_commercial=False,
    hub_id="black-forest-labs/FLUX.1-dev",
)

_KONTEXT: Final = replace(
    _FLUX1,
    model_id="flux.1-kontext-dev",
    label="FLUX.1 Kontext dev",
    weights="flux.1-kontext-dev",
    hub_id="black-forest-labs/FLUX.1-Kontext-dev",
    licence_url="https://huggingface.co/black-forest-labs/FLUX.1-Kontext-dev",
    pipelines=MappingProxyType({GenerationTask.I2I: "diffusers:FluxKontextPipeline"}),
    inputs=MappingProxyType({}),
    sizes=(
        Size(width=1024, height=1024, label="1:1"),
        Size(width=1392, height=752, label="16:9"),
        Size(width=752, height=1392, label="9:16"),
        Size(width=944, height=1104, label="4:5"),
    ),
    default_guidance=2.5,
    # The picture that is edited goes through the blocks beside the one that is made.
    cost=replace(_COST, reference_share=1.0),
)

_FILL: Final = replace(
    _FLUX1,
    model_id="flux.1-fill-dev",
    label="FLUX.1 Fill dev",
    weights="flux.1-fill-dev",
    hub_id="black-forest-labs/FLUX.1-Fill-dev",
    licence_url="https://huggingface.co/black-forest-labs/FLUX.1-Fill-dev/blob/main/LICENSE.md",
    pipelines=MappingProxyType({GenerationTask.I2I: "diffusers:FluxFillPipeline"}),
    inputs=MappingProxyType(
        {
            GenerationTask.I2I: TaskInputs(
                min_references=1, max_references=1, needs_mask=True, default_strength=1.0
            )
        }
    ),
    default_steps=50,
    default_guidance=30.0,
)

_FLUX2: Final = replace(
    _FLUX1,
    model_id="flux.2-dev",
    label="FLUX.2 dev",
    weights="flux.2-dev",
    hub_id="black-forest-labs/FLUX.2-dev",
    licence="FLUX [dev] Non-Commercial License",
    licence_url="https://huggingface.co/black-forest-labs/FLUX.2-dev/blob/main/LICENSE.txt",
    runner="engine.pipelines.flux2:Flux2Runner",
    pipelines=MappingProxyType(
        {
            GenerationTask.T2I: "diffusers:Flux2Pipeline",
            GenerationTask.I2I: "diffusers:Flux2Pipeline",
        }
    ),
    inputs=MappingProxyType({GenerationTask.I2I: TaskInputs(min_references=1, max_references=4)}),
    default_steps=50,
    default_guidance=4.0,
    tokenizer="tokenizer",
    # The pipeline puts a system message of some fifty words around every prompt.
    reserved_tokens=96,
    cost=JointCostModel(
        num_blocks=56,
        dim=6144,
        token_matrices=13,
        text_tokens=512,
        token_stride=(1, 16, 16),
        decode_flops=9.99e6,
    ),
)

MODELS: Final = (_FLUX1, _KONTEXT, _FILL, _FLUX2)
