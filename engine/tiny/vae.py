"""The built-in VAE: its configuration, its start near a linear code, and fast training passes.

The saved model is a stock `AutoencoderKLWan`. Training only replaces how a few of its modules run:
whole clips at once instead of chunks, and norms that stay in bfloat16. `tests` hold the passes
equal to diffusers' own chunked ones.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan
from diffusers.models.autoencoders import autoencoder_kl_wan as wan
from torch import Tensor, nn

VAE_CONFIG: dict[str, Any] = {
    "base_dim": 128,
    "decoder_base_dim": 96,
    "z_dim": 48,
    "dim_mult": [1, 1, 1],
    "num_res_blocks": 0,
    "temperal_downsample": [True, True],
    "is_residual": True,
    "patch_size": 4,
    "in_channels": 48,
    "out_channels": 48,
    "scale_factor_spatial": 16,
    "scale_factor_temporal": 4,
    "latents_mean": [0.0] * 48,
    "latents_std": [1.0] * 48,
}
# Strength of the constant channel that keeps the encoder's last norm nearly linear at the start.
CONSTANT = 40.0
GAIN = 0.06


def build_vae(config: dict[str, Any] = VAE_CONFIG) -> AutoencoderKLWan:
    """A VAE whose residual branches start at zero and whose time convolutions start still."""
    vae = AutoencoderKLWan(**config)
    for module in vae.modules():
        if isinstance(module, wan.WanResidualBlock):
            nn.init.zeros_(module.conv2.weight)
            nn.init.zeros_(module.conv2.bias)
        elif isinstance(module, wan.WanAttentionBlock):
            nn.init.zeros_(module.proj.weight)
            nn.init.zeros_(module.proj.bias)
        if isinstance(module, wan.WanCausalConv3d) and module.kernel_size[0] == 3:
            with torch.no_grad():
                module.weight[:, :, :-1] = 0
                if module.kernel_size[1] == 3:
                    module.weight[:, :, -1] *= 3**0.5  # the fan-in counted three frames
        if isinstance(module, wan.WanResample) and hasattr(module, "time_conv"):
            _still_time_conv(module)
    for conv in (vae.quant_conv, vae.post_quant_conv):
        nn.init.dirac_(conv.weight)
        nn.init.zeros_(conv.bias)
    return vae


@torch.no_grad()
def _still_time_conv(module: wan.WanResample) -> None:
    """Down: the mean of the two new frames. Up: the same frame twice."""
    dim = module.dim
    weight = torch.zeros_like(module.time_conv.weight)
    eye = torch.eye(dim).unsqueeze(-1).unsqueeze(-1)
    if module.mode == "downsample3d":
        weight[:, :, 1] = eye / 2
        weight[:, :, 2] = eye / 2
    else:
        weight[:dim, :, 2] = eye
        weight[dim:, :, 2] = eye
    module.time_conv.weight.copy_(weight)
    module.time_conv.bias.zero_()


def _principal(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean (C,) and the `count` strongest principal directions (count, C) of samples (N, C)."""
    mean = x.mean(0)
    centred = x - mean
    _, vectors = torch.linalg.eigh(centred.T @ centred / len(x))
    return mean, vectors.flip(1).T[:count].contiguous()


def _stack_patches(x: Tensor) -> Tensor:
    """(N, C, H, W) to (N, 4C, H/2, W/2), channel order (row, column, C)."""
    parts = [x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)]
    return torch.cat(parts, dim=1)


@torch.no_grad()
def start_linear(vae: AutoencoderKLWan, images: Tensor) -> None:
    """Make the encoder a principal-component code of 16x16 blocks of images (N, 3, H, W).

    Each stage keeps the strongest components of four neighbours. One channel stays constant, so
    that the last norm changes little, and SiLU near zero halves its input.
    """
    encoder = vae.encoder
    dim, z_dim = encoder.conv_in.out_channels, vae.config.z_dim
    x = wan.patchify(images.unsqueeze(2), vae.config.patch_size).squeeze(2)
    mean, basis = _principal(x.permute(0, 2, 3, 1).flatten(0, 2), x.shape[1])
    encoder.conv_in.weight.zero_()
    encoder.conv_in.weight[: len(basis), :, -1, 1, 1] = basis
    encoder.conv_in.bias.zero_()
    encoder.conv_in.bias[: len(basis)] = -basis @ mean
    encoder.conv_in.bias[-1] = CONSTANT
    x = torch.einsum("nchw,dc->ndhw", x - mean.view(1, -1, 1, 1), basis)
    for block in encoder.down_blocks[:2]:
        channels = x.shape[1]
        stacked = _stack_patches(x)
        kept = min(dim - 1, stacked.shape[1])
        mean, basis = _principal(stacked.permute(0, 2, 3, 1).flatten(0, 2), kept)
        conv = block.downsampler.resample[1]
        conv.weight.zero_()
        conv.bias.zero_()
        # On single frames the shortcut adds an eighth of each neighbour.
        conv.weight[:, :, :2, :2] -= torch.eye(dim).view(dim, dim, 1, 1) / 8
        for index in range(4):
            part = basis[:, index * channels : (index + 1) * channels]
            conv.weight[:kept, :channels, index // 2, index % 2] += part
        conv.bias[:kept] = -basis @ mean
        conv.bias[-1] = CONSTANT
        x = torch.einsum("nchw,dc->ndhw", stacked - mean.view(1, -1, 1, 1), basis)
    encoder.norm_out.gamma.fill_(GAIN)
    gain = 0.5 * GAIN * dim**0.5 / (CONSTANT**2 + x.square().sum(1).mean()).sqrt()
    # Half-whitened: strong components stay stronger, and the transformer meets them first.
    scale = x.permute(1, 0, 2, 3).flatten(1).std(1).clamp(min=0.05)[:z_dim].rsqrt()
    encoder.conv_out.weight.zero_()
    encoder.conv_out.bias.zero_()
    kept_channels = torch.arange(z_dim)
    encoder.conv_out.weight[kept_channels, kept_channels, -1, 1, 1] = scale / gain


def _causal_conv(self: wan.WanCausalConv3d, x: Tensor, cache_x: Tensor | None = None) -> Tensor:
    """Same result as the original; a single frame needs the last time tap only."""
    if x.shape[2] == 1 and cache_x is None and self._padding[4] == self.kernel_size[0] - 1:
        out = F.conv2d(x[:, :, 0], self.weight[:, :, -1], self.bias, padding=self._padding[0])
        return out.unsqueeze(2)
    return F.conv3d(F.pad(x, self._padding), self.weight, self.bias, self.stride)


def _rms_norm(self: wan.WanRMS_norm, x: Tensor) -> Tensor:
    """The original converts the whole tensor to float32; only the norm itself needs that."""
    axis = 1 if self.channel_first else -1
    length = torch.linalg.vector_norm(x, dim=axis, keepdim=True, dtype=torch.float32)
    scale = (self.scale / length.clamp(min=1e-12)).to(x.dtype)
    out: Tensor = x * scale * self.gamma.to(x.dtype)
    return out


def _resample(self: wan.WanResample, x: Tensor, **_: Any) -> Tensor:
    """Whole-clip resampling: the first frame is never merged or doubled in time."""
    if self.mode == "upsample3d" and x.shape[2] > 1:
        b, c, t, h, w = x.shape
        later = self.time_conv(x[:, :, 1:]).view(b, 2, c, t - 1, h, w)
        later = later.permute(0, 2, 3, 1, 4, 5).reshape(b, c, 2 * (t - 1), h, w)
        x = torch.cat((x[:, :, :1], later), dim=2)
    b, c, t, h, w = x.shape
    flat = x.permute(0, 2, 1, 3, 4).reshape(b * t, c, h, w)
    if self.mode.startswith("upsample"):
        flat = self.resample[1](F.interpolate(flat, scale_factor=2, mode="nearest"))
    else:
        flat = self.resample(flat)
    x = flat.view(b, t, *flat.shape[1:]).permute(0, 2, 1, 3, 4)
    if self.mode == "downsample3d" and t > 1:
        x = torch.cat((x[:, :, :1], self.time_conv(x)), dim=2)
    return x


@contextmanager
def whole_clip_passes() -> Iterator[None]:
    """Let the VAE's modules run whole clips at once, inside `encode_clips` and `decode_clips`."""
    patched = (
        (wan.WanCausalConv3d, _causal_conv),
        (wan.WanRMS_norm, _rms_norm),
        (wan.WanResample, _resample),
    )
    originals = [cls.forward for cls, _ in patched]
    for cls, forward in patched:
        cls.forward = forward
    try:
        yield
    finally:
        for (cls, _), forward in zip(patched, originals, strict=True):
            cls.forward = forward


def encode_clips(vae: AutoencoderKLWan, clips: Tensor) -> Tensor:
    """Posterior means (B, z, 1+(F-1)/4, H/16, W/16), not normalised, of clips (B, 3, F, H, W)."""
    hidden = vae.encoder(wan.patchify(clips, vae.config.patch_size))
    moments: Tensor = vae.quant_conv(hidden)
    return moments[:, : vae.config.z_dim]


def decode_clips(vae: AutoencoderKLWan, latents: Tensor) -> Tensor:
    """Clips (B, 3, F, H, W), not clamped, of latents that are not normalised."""
    hidden = vae.decoder(vae.post_quant_conv(latents), first_chunk=True)
    clips: Tensor = wan.unpatchify(hidden, vae.config.patch_size)
    return clips


def reconstruction_loss(output: Tensor, target: Tensor) -> Tensor:
    """L1 and squared error, with gradients and colour differences weighted up."""
    error = output - target
    loss = error.abs().mean() + 1.5 * error.square().mean()
    loss = loss + 0.4 * (error.diff(dim=-1).abs().mean() + error.diff(dim=-2).abs().mean())
    return loss + 0.4 * error.diff(dim=1).abs().mean()


def psnr(output: Tensor, target: Tensor) -> Tensor:
    """PSNR in dB of each clip (B,), for values in [-1, 1]."""
    error = (output.clamp(-1, 1) - target).square().flatten(1).mean(1)
    return -10 * torch.log10((error / 4).clamp(min=1e-10))
