"""The model that is built in."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from engine.costs import CostModel
from engine.models.spec import ModelSpec, Size
from engine.models.tiny_vocabulary import ATTRIBUTES
from engine.types import GenerationTask

MODELS: Final = (
    ModelSpec(
        model_id="adloom-tiny",
        label="Adloom Tiny (built in)",
        weights="tiny",
        runner="engine.pipelines.wan:WanRunner",
        pipelines=MappingProxyType(
            {
                GenerationTask.T2V: "diffusers:WanPipeline",
                GenerationTask.I2V: "diffusers:WanImageToVideoPipeline",
                GenerationTask.T2I: "diffusers:WanPipeline",
            }
        ),
        sizes=(
            Size(width=224, height=128, label="16:9"),
            Size(width=128, height=224, label="9:16"),
            Size(width=160, height=160, label="1:1"),
            Size(width=128, height=160, label="4:5"),
        ),
        frame_stride=4,
        min_frames=5,
        default_frames=17,
        max_frames=17,
        fps=12,
        default_steps=30,
        default_guidance=4.0,
        max_sequence_length=64,
        cost=CostModel(
            num_layers=6,
            dim=320,
            ffn_dim=768,
            text_tokens=64,
            has_token_timesteps=True,
            token_stride=(4, 32, 32),
            decode_flops=102_500.0,
        ),
        licence="Apache-2.0",
        vocabulary=ATTRIBUTES,
    ),
)
