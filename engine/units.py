"""Work units: what rendering costs on any device, from the model's architecture; no torch.

A work unit is one transformer forward of the model at its default size and length, weighted by
floating-point operations; decoding counts in the same unit.
"""

from __future__ import annotations

from functools import lru_cache

from engine.registry import forwards_per_step, get_model
from engine.types import RenderSettings


def clip_units(settings: RenderSettings) -> float:
    """Work units of one exact render: all forwards and the decode."""
    forwards = settings.last_step * forwards_per_step(settings)
    return forwards * forward_units(settings) + decode_units(settings)


def forward_units(settings: RenderSettings) -> float:
    """Work units of one transformer forward at this size."""
    spec = get_model(settings.model_id)
    tokens = spec.cost.num_tokens(
        width=settings.width, height=settings.height, num_frames=settings.num_frames
    )
    return spec.cost.forward_flops(tokens) / _reference_flops(settings.model_id)


def decode_units(settings: RenderSettings) -> float:
    """Work units of turning one clip's latents into frames."""
    pixels = settings.width * settings.height * settings.num_frames
    flops = get_model(settings.model_id).cost.decode_flops * pixels
    return flops / _reference_flops(settings.model_id)


@lru_cache(maxsize=64)
def _reference_flops(model_id: str) -> float:
    """Operations of the forward that counts as one unit: the default size and length."""
    spec = get_model(model_id)
    size = spec.sizes[0]
    return spec.cost.forward_flops(
        spec.cost.num_tokens(width=size.width, height=size.height, num_frames=spec.default_frames)
    )
