"""The registry's prices against the real architectures' operations, counted without weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import diffusers
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from engine.costs import CostModel
from engine.registry import get_model

TOKENS = 1024
SIDE = 32  # of the latents in tokens


def _wan(transformer: Any, **further: torch.Tensor) -> Callable[[], Any]:
    channels = transformer.config.in_channels
    return lambda: transformer(
        torch.empty(1, channels, 1, 2 * SIDE, 2 * SIDE),
        timestep=torch.empty(1, TOKENS) if channels == 48 else torch.empty(1),
        encoder_hidden_states=torch.empty(1, 512, 4096),
        **further,
    )


def _wan_14b(num_layers: int) -> Callable[[], Any]:
    return _wan(diffusers.WanTransformer3DModel(num_layers=num_layers))


def _wan_5b(num_layers: int) -> Callable[[], Any]:
    config = {"num_attention_heads": 24, "ffn_dim": 14336, "num_layers": num_layers}
    return _wan(diffusers.WanTransformer3DModel(**config, in_channels=48, out_channels=48))


def _flux(num_layers: int) -> Callable[[], Any]:
    transformer = diffusers.FluxTransformer2DModel(
        num_layers=num_layers, num_single_layers=num_layers, guidance_embeds=True
    )
    return lambda: transformer(
        torch.empty(1, TOKENS, 64),
        torch.empty(1, 512, 4096),
        torch.empty(1, 768),
        torch.empty(1),
        torch.empty(TOKENS, 3),
        torch.empty(512, 3),
        torch.empty(1),
    )


def _flux2(num_layers: int) -> Callable[[], Any]:
    transformer = diffusers.Flux2Transformer2DModel(
        num_layers=num_layers, num_single_layers=num_layers
    )
    return lambda: transformer(
        torch.empty(1, TOKENS, 128),
        torch.empty(1, 512, 15360),
        torch.empty(1),
        torch.empty(1, TOKENS, 4),
        torch.empty(1, 512, 4),
        torch.empty(1),
    )


def _ltx2(num_layers: int) -> Callable[[], Any]:
    transformer = diffusers.LTX2VideoTransformer3DModel(num_layers=num_layers)
    text = torch.empty(1, 1024, 3840)
    return lambda: transformer(
        hidden_states=torch.empty(1, TOKENS, 128),
        audio_hidden_states=torch.empty(1, 1, 128),
        encoder_hidden_states=text,
        audio_encoder_hidden_states=text,
        timestep=torch.empty(1),
        sigma=torch.empty(1),
        num_frames=1,
        height=SIDE,
        width=SIDE,
        fps=24.0,
        audio_num_frames=1,
    )


def _counted(build: Callable[[int], Callable[[], Any]], num_layers: int) -> int:
    with torch.no_grad(), torch.device("meta"):
        forward = build(num_layers)
        with FlopCounterMode(display=False) as counter:
            forward()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("model_id", "build"),
    [
        ("wan2.2-t2v-a14b", _wan_14b),
        ("wan2.2-ti2v-5b", _wan_5b),
        ("flux.1-dev", _flux),
        ("flux.2-dev", _flux2),
        ("ltx-2", _ltx2),
    ],
)
def test_a_block_costs_what_the_architecture_computes(
    model_id: str, build: Callable[[int], Callable[[], Any]]
) -> None:
    # The difference of two depths is that of their blocks alone.
    counted = _counted(build, 2) - _counted(build, 1)
    cost = get_model(model_id).cost
    # One layer more is a block of each kind where text and picture go through together.
    name, step = ("num_layers", 1) if isinstance(cost, CostModel) else ("num_blocks", 2)
    priced = [replace(cost, **{name: step * depth}).forward_flops(TOKENS) for depth in (1, 2)]
    assert priced[1] - priced[0] == pytest.approx(counted, rel=0.05)
