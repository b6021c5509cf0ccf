"""Qwen-Image, by the Qwen team (arXiv:2508.02324): pictures from text, with words in them.

Settings are those of diffusers' pipeline
(https://huggingface.co/docs/diffusers/main/api/pipelines/qwenimage).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from engine.costs import JointCostModel
from engine.models.spec import ModelSpec, Size, SizeRule, TaskInputs
from engine.types import GenerationTask

MODELS: Final = (
    ModelSpec(
        model_id="qwen-image",
        label="Qwen-Image",
        weights="qwen-image",
        runner="engine.pipelines.qwen_image:QwenImageRunner",
        pipelines=MappingProxyType({GenerationTask.T2I: "diffusers:QwenImagePipeline"}),
        # Its embeddings are as long as the prompt, so two prompts make no batch.
        inputs=MappingProxyType({GenerationTask.T2I: TaskInputs(takes_batches=False)}),
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
        default_steps=50,
        default_guidance=4.0,
        max_sequence_length=1024,
        cost=JointCostModel(
            num_blocks=60,
            dim=3072,
            token_matrices=12,
            text_tokens=128,
            token_stride=(1, 16, 16),
            decode_flops=1.03e7,
        ),
        licence="Apache-2.0",
        licence_url="https://huggingface.co/Qwen/Qwen-Image",
        hub_id="Qwen/Qwen-Image",
    ),
)
