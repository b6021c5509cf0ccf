"""Requests rendered by diffusers alone, for tests of what must equal it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import WanImageToVideoPipeline, WanPipeline
from numpy.typing import NDArray
from PIL import Image

from engine.types import GenerationRequest


def render_plainly(folder: Path, request: GenerationRequest) -> NDArray[np.uint8]:
    """The request through diffusers alone, from prompt to pictures (F, H, W, 3)."""
    settings = request.settings
    arguments: dict[str, Any] = {
        "prompt": request.prompt,
        "negative_prompt": request.negative_prompt,
        "height": settings.height,
        "width": settings.width,
        "num_frames": settings.num_frames,
        "num_inference_steps": settings.num_inference_steps,
        "guidance_scale": settings.guidance_scale,
        "max_sequence_length": 64,
        "generator": torch.Generator("cpu").manual_seed(request.seed),
        "output_type": "pil",
    }
    pipeline_class = WanPipeline
    if request.references:
        pipeline_class = WanImageToVideoPipeline
        arguments["image"] = Image.open(request.references[0])
    pipeline = pipeline_class.from_pretrained(folder, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    return np.stack([np.asarray(picture) for picture in pipeline(**arguments).frames[0]])
