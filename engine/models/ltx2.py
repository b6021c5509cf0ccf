"""LTX-2, by Lightricks: clips with sound, from text and pictures.

Settings are those of diffusers' documentation, the architecture that of its conversion
(https://huggingface.co/docs/diffusers/main/api/pipelines/ltx2,
https://github.com/huggingface/diffusers/blob/main/scripts/convert_ltx2_to_diffusers.py).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from engine.costs import CostModel
from engine.models.spec import ModelSpec, Size, SizeRule
from engine.types import GenerationTask

MODELS: Final = (
    ModelSpec(
        model_id="ltx-2",
        label="LTX-2",
        weights="ltx-2",
        runner="engine.pipelines.ltx2:LTX2Runner",
        pipelines=MappingProxyType(
            {
                GenerationTask.T2V: "diffusers:LTX2Pipeline",
                GenerationTask.I2V: "diffusers:LTX2ImageToVideoPipeline",
            }
        ),
        sizes=(
            Size(width=768, height=512, label="3:2"),
            Size(width=512, height=768, label="2:3"),
            Size(width=704, height=704, label="1:1"),
            Size(width=1280, height=704, label="16:9"),
            Size(width=704, height=1280, label="9:16"),
        ),
        size_rule=SizeRule(multiple=32, min_side=256, max_side=1920, max_pixels=1920 * 1088),
        frame_stride=8,
        min_frames=9,
        default_frames=121,
        max_frames=241,
        fps=24,
        default_steps=40,
        default_guidance=4.0,
        max_sequence_length=1024,
        # Each step has one more forward, with picture and sound kept apart.
        extra_forwards=1,
        reads_fps=True,
        has_audio=True,
        # Its forwards give two predictions, one for sound.
        can_skip_steps=False,
        cost=CostModel(
            num_layers=48,
            dim=4096,
            ffn_dim=16384,
            text_tokens=1024,
            has_token_timesteps=False,
            token_stride=(8, 32, 32),
            decode_flops=1.3e6,
            # Attention between picture and sound, which is half as wide.
            further_matrices=2,
        ),
        licence="LTX-2 Community License",
        licence_url="https://github.com/Lightricks/LTX-2/blob/main/LICENSE-2",
        hub_id="Lightricks/LTX-2",
    ),
)
