"""Wan's VAE decoder on a CPU in bfloat16, laid out so that convolutions need no reordering."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's notation
from diffusers.models.autoencoders.autoencoder_kl_wan import (
    WanCausalConv3d,
    WanRMS_norm,
    WanUpsample,
)


def fast_decoder(vae: Any) -> Any:
    """A copy of an AutoencoderKLWan that decodes faster and, up to rounding, the same.

    It computes in bfloat16, channels last, and pads inside the convolutions. It cannot encode.
    """
    # What only encodes stays behind: it would be most of the copy.
    only_encoding = {name: getattr(vae, name) for name in ("encoder", "quant_conv")}
    fast = copy.deepcopy(vae, {id(module): None for module in only_encoding.values()})
    for module in fast.children():
        module.to(torch.bfloat16)
    for module in fast.modules():
        if isinstance(module, WanCausalConv3d):
            module.__class__ = _PaddingConv3d
            _lay_out(module, torch.channels_last_3d)
        elif isinstance(module, torch.nn.Conv2d):
            _lay_out(module, torch.channels_last)
        elif isinstance(module, WanRMS_norm) and module.channel_first and _has_no_bias(module):
            module.__class__ = _InPlaceNorm
        elif isinstance(module, WanUpsample):
            # Nearest neighbours are the same in any precision.
            module.__class__ = torch.nn.Upsample
    return fast


class _PaddingConv3d(torch.nn.Conv3d):
    """WanCausalConv3d that pads in space as it convolves; only time gets frames put in front."""

    _padding: tuple[int, ...]

    def forward(self, x: torch.Tensor, cache_x: torch.Tensor | None = None) -> torch.Tensor:
        columns, _, rows, _, frames, _ = self._padding
        if frames:
            if cache_x is not None:
                x = torch.cat([cache_x, x], dim=2)
                frames -= cache_x.shape[2]
            if frames:
                x = F.pad(x, (0, 0, 0, 0, frames, 0))
        return F.conv3d(x, self.weight, self.bias, self.stride, (0, rows, columns))


class _InPlaceNorm(torch.nn.Module):
    """WanRMS_norm with norms in float32 and products in place."""

    scale: float
    gamma: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=torch.float32)
        scale: torch.Tensor = self.scale / norm.clamp_min(1e-12)
        return (x * scale.to(x.dtype)).mul_(self.gamma)


def _lay_out(convolution: Any, layout: torch.memory_format) -> None:
    convolution.weight.data = convolution.weight.data.contiguous(memory_format=layout)


def _has_no_bias(norm: Any) -> bool:
    return not isinstance(norm.bias, torch.Tensor)
