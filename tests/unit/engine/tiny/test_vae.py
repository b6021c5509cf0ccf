"""The VAE's fast training passes equal diffusers' own chunked passes."""

from collections.abc import Iterator

import pytest
import torch
from diffusers import AutoencoderKLWan
from torch import Tensor

from engine.tiny.vae import (
    VAE_CONFIG,
    build_vae,
    decode_clips,
    encode_clips,
    psnr,
    start_linear,
    whole_clip_passes,
)

SMALL = {
    **VAE_CONFIG,
    "base_dim": 64,
    "decoder_base_dim": 16,
    "z_dim": 8,
    "latents_mean": [0.0] * 8,
    "latents_std": [1.0] * 8,
}


@pytest.fixture
def vae() -> Iterator[AutoencoderKLWan]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        vae = build_vae(SMALL)
        with torch.no_grad():
            for parameter in vae.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
        yield vae.eval()


@pytest.fixture
def clip() -> Tensor:
    return torch.rand(2, 3, 9, 32, 32, generator=torch.Generator().manual_seed(1)) * 2 - 1


@torch.no_grad()
@pytest.mark.parametrize("num_frames", [1, 5, 9])
def test_whole_clip_passes_equal_the_chunked_ones(
    vae: AutoencoderKLWan, clip: Tensor, num_frames: int
) -> None:
    clip = clip[:, :, :num_frames]
    latents = vae.encode(clip).latent_dist.mean
    video = vae.decode(latents).sample
    with whole_clip_passes():
        assert torch.allclose(encode_clips(vae, clip), latents, atol=1e-4)
        assert torch.allclose(decode_clips(vae, latents).clamp(-1, 1), video, atol=1e-4)


@torch.no_grad()
def test_the_original_passes_come_back(vae: AutoencoderKLWan, clip: Tensor) -> None:
    before = vae.encode(clip).latent_dist.mean
    with whole_clip_passes():
        encode_clips(vae, clip)
    assert torch.equal(vae.encode(clip).latent_dist.mean, before)


@torch.no_grad()
def test_a_linear_start_keeps_what_principal_components_keep() -> None:
    generator = torch.Generator().manual_seed(2)
    # Smooth pictures: eight components of a 16x16 block hold nearly all of them.
    coarse = torch.rand(64, 3, 3, 3, generator=generator) * 2 - 1
    images = torch.nn.functional.interpolate(coarse, size=(64, 64), mode="bicubic")
    torch.manual_seed(0)
    vae = build_vae(SMALL)
    start_linear(vae, images)
    with whole_clip_passes():
        latents = encode_clips(vae, images.unsqueeze(2)).squeeze(2)
    codes = latents.permute(0, 2, 3, 1).reshape(-1, 8)
    blocks = images.view(64, 3, 4, 16, 4, 16).permute(0, 2, 4, 1, 3, 5).reshape(-1, 768)
    codes = torch.cat((codes, torch.ones(len(codes), 1)), dim=1)
    fitted = codes @ torch.linalg.lstsq(codes, blocks).solution
    assert float((fitted - blocks).square().mean() / blocks.var()) < 0.05


def test_psnr_of_a_known_error() -> None:
    target = torch.zeros(1, 3, 1, 8, 8)
    # An error of 0.2 on a range of 2 is a tenth of it: 20 dB.
    assert float(psnr(target + 0.2, target)) == pytest.approx(20, abs=1e-3)
