"""HiDream-I1, by HiDream.ai (arXiv:2505.22705): pictures from text.

Steps are those of the authors' page (https://github.com/HiDream-ai/HiDream-I1). The pipeline
brings every size to the area of its training, so only sizes of that area are offered.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from engine.costs import JointCostModel
from engine.models.spec import Guidance, ModelSpec, Size, TaskInputs
from engine.types import GenerationTask

# The fourth text encoder, which the pipeline's documentation in diffusers loads from here.
_LANGUAGE: Final = "meta-llama/Meta-Llama-3.1-8B-Instruct"

_FULL: Final = ModelSpec(
    model_id="hidream-i1-full",
    label="HiDream-I1 Full",
    weights="hidream-i1-full",
    runner="engine.pipelines.hidream:HiDreamRunner",
    pipelines=MappingProxyType({GenerationTask.T2I: "diffusers:HiDreamImagePipeline"}),
    sizes=(
        Size(width=1024, height=1024, label="1:1"),
        Size(width=1360, height=768, label="16:9"),
        Size(width=768, height=1360, label="9:16"),
        Size(width=880, height=1168, label="3:4"),
    ),
    frame_stride=1,
    min_frames=1,
    default_frames=1,
    max_frames=1,
    fps=1,
    default_steps=50,
    default_guidance=5.0,
    max_sequence_length=128,
    tokenizer="tokenizer_3",
    cost=JointCostModel(
        num_blocks=48,
        dim=2560,
        # Of four experts a token goes through two and the shared one.
        token_matrices=24.4,
        text_tokens=384,
        token_stride=(1, 16, 16),
        decode_flops=9.99e6,
    ),
    licence="MIT",
    licence_url="https://github.com/HiDream-ai/HiDream-I1/blob/main/LICENSE",
    hub_id="HiDream-ai/HiDream-I1-Full",
    borrowed_parts=MappingProxyType(dict.fromkeys(("text_encoder_4", "tokenizer_4"), _LANGUAGE)),
)

# Distilled: no guidance, and a solver that draws noise in every step, for each picture its own.
_DEV: Final = replace(
    _FULL,
    model_id="hidream-i1-dev",
    label="HiDream-I1 Dev",
    weights="hidream-i1-dev",
    hub_id="HiDream-ai/HiDream-I1-Dev",
    inputs=MappingProxyType({GenerationTask.T2I: TaskInputs(takes_batches=False)}),
    default_steps=28,
    default_guidance=0.0,
    guidance=Guidance.NONE,
)

_FAST: Final = replace(
    _DEV,
    model_id="hidream-i1-fast",
    label="HiDream-I1 Fast",
    weights="hidream-i1-fast",
    hub_id="HiDream-ai/HiDream-I1-Fast",
    default_steps=16,
)

MODELS: Final = (_FULL, _DEV, _FAST)
