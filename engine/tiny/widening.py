"""Carries the training state of a narrower transformer over to a wider one.

Method: zero-padded growth in the spirit of Chen et al., "Net2Net" (2015). The old channels keep
their weights, nothing reads the new ones yet, and their makers start at random, so training goes
on from nearly the same function.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

# Layers whose new rows start at random, with the spread of the old ones; all else starts at zero.
MAKERS = ("to_q", "to_k", "to_v", "patch_embedding", "linear_1", "linear_2")
MODULATION_PARTS = 6  # shift, scale and gate of self-attention and of the feed-forward part


def width_of(weights: dict[str, Tensor]) -> int:
    """Channels between the blocks of a transformer with these weights."""
    return weights["proj_out.weight"].shape[1]


def widen_state(
    state: dict[str, Any], model: nn.Module, names: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """The trainer's state with weights, average and optimizer moments in the shapes of `model`.

    `names` lists each optimizer's parameters in its order. Only the width may differ.
    """
    shapes = {name: value.shape for name, value in model.state_dict().items()}

    def widen_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        # One seed for weights and average, so that their new parts are the same.
        generator = torch.Generator().manual_seed(31)
        return {
            name: _place(name, value, _start(name, value, shapes[name], generator))
            for name, value in weights.items()
        }

    def widen_moment(name: str, value: Any) -> Any:
        is_moment = isinstance(value, Tensor) and value.ndim > 0  # a step count stays as it is
        return _place(name, value, torch.zeros(shapes[name])) if is_moment else value

    optimizers = []
    for saved, own in zip(state["optimizers"], names, strict=True):
        moments = {
            index: {key: widen_moment(own[index], value) for key, value in values.items()}
            for index, values in saved["state"].items()
        }
        optimizers.append(saved | {"state": moments})
    average = state["average"] | {"weights": widen_weights(state["average"]["weights"])}
    return state | {
        "model": widen_weights(state["model"]),
        "average": average,
        "optimizers": optimizers,
    }


def _start(name: str, old: Tensor, shape: torch.Size, generator: torch.Generator) -> Tensor:
    """What a wider parameter holds where the old one has nothing."""
    start = torch.zeros(shape)
    if "norm" in name and name.endswith("weight"):
        start += 1.0
    elif name.startswith("blocks.") and name.endswith("scale_shift_table"):
        start[:, 2::3] = 1.0  # gates start open
    elif name.endswith("weight") and any(maker in name for maker in MAKERS):
        new = start[old.shape[0] :]
        new += torch.randn(new.shape, generator=generator) * old.std()
    return start


def _place(name: str, old: Tensor, start: Tensor) -> Tensor:
    """`old` in the leading corner of `start`; stacked modulation part by part."""
    parts = MODULATION_PARTS if "time_proj" in name else 1
    old_parts = old.view(parts, -1, *old.shape[1:])
    corner = tuple(slice(0, size) for size in old_parts.shape)
    start.view(parts, -1, *start.shape[1:])[corner] = old_parts
    return start
