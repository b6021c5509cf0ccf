"""Distances between renders, and the promises that they are held against."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.distances import drift, projection, psnr_db, ssim
from engine.profiles import PROMISES, Distance
from engine.types import QualityProfile


def _clip(seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(40, 200, (3, 24, 32, 3), dtype=np.uint8)


def _latents(seed: int) -> torch.Tensor:
    return torch.randn((1, 8, 2, 8, 14), generator=torch.Generator().manual_seed(seed))


def test_psnr_is_the_logarithm_of_the_squared_error() -> None:
    clip = _clip()
    assert psnr_db(clip, clip) == math.inf
    assert psnr_db(clip, clip + 5) == pytest.approx(10 * math.log10(255**2 / 25))
    # Differences of unsigned pixels do not wrap around.
    assert psnr_db(clip, clip + 5) == psnr_db(clip + 5, clip)


def test_ssim_is_the_published_formula() -> None:
    left = np.zeros((1, 11, 11, 3), np.uint8) + np.arange(11, dtype=np.uint8)[:, None] * 10
    right = np.clip(left.astype(int) * 2 + 30, 0, 255).astype(np.uint8)
    # One window alone, so the formula can be written out.
    offsets = np.arange(11) - 5
    kernel = np.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * 1.5**2))
    kernel /= kernel.sum()
    x, y = left[0, :, :, 0].astype(float), right[0, :, :, 0].astype(float)
    mean_x, mean_y = (kernel * x).sum(), (kernel * y).sum()
    var_x, var_y = (kernel * (x - mean_x) ** 2).sum(), (kernel * (y - mean_y) ** 2).sum()
    covariance = (kernel * (x - mean_x) * (y - mean_y)).sum()
    c1, c2 = 2.55**2, 7.65**2
    expected = ((2 * mean_x * mean_y + c1) * (2 * covariance + c2)) / (
        (mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2)
    )
    assert ssim(left, right) == pytest.approx(expected)


def test_ssim_falls_from_one_with_noise() -> None:
    clip = _clip()
    noise = np.random.default_rng(1).normal(0, 1, clip.shape)
    values = [ssim(clip, (clip + strength * noise).astype(np.uint8)) for strength in (0, 10, 40)]
    assert values[0] == pytest.approx(1)
    assert values[0] > values[1] > values[2] > 0


def test_projection_is_the_part_of_the_change_that_came() -> None:
    asked = _latents(0)
    assert projection(asked, asked) == pytest.approx(1)
    assert projection(torch.zeros_like(asked), asked) == 0
    assert projection(0.5 * asked, asked) == pytest.approx(0.5)
    # A move across the way is no part of it.
    across = _latents(1)
    across -= asked * (across.flatten() @ asked.flatten()) / asked.square().sum()
    assert projection(0.5 * asked + across, asked) == pytest.approx(0.5, abs=1e-5)
    assert projection(across, torch.zeros_like(asked)) == 1


def test_drift_looks_only_at_what_should_not_change() -> None:
    asked = 0.1 * _latents(0)
    asked[..., 7:] += 5
    assert drift(asked, asked) == pytest.approx(1)
    assert drift(0.1 * _latents(1), asked) == pytest.approx(1, abs=0.1)
    assert drift(0.3 * _latents(1), asked) == pytest.approx(3, abs=0.3)
    elsewhere = torch.zeros_like(asked)
    elsewhere[..., 7:] -= 100
    assert drift(elsewhere, asked) == 0
    assert drift(elsewhere, torch.zeros_like(asked)) == math.inf


def _distance(**changes: float | None) -> Distance:
    kept: dict[str, float | None] = {"psnr_db": 20, "ssim": 0.8, "projection": 0.9, "drift": 0.8}
    return Distance(**(kept | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("profile", "changes", "is_kept"),
    [
        ("faithful", {}, False),
        ("faithful", {"psnr_db": 30.0}, True),
        ("faithful", {"ssim": 0.95}, True),
        ("faithful", {"psnr_db": 29.9, "ssim": 0.949}, False),
        ("consistent", {}, True),
        ("consistent", {"projection": 0.79}, False),
        ("consistent", {"drift": 1.3}, False),
        ("consistent", {"projection": None, "drift": None}, True),
        ("fast", {"projection": 0.65}, True),
        ("draft", {"projection": 0.55, "drift": 9.0}, True),
        ("draft", {"projection": 0.45}, False),
        ("exact", {"projection": 0.0, "drift": 9.0}, True),
    ],
)
def test_a_promise_is_kept_or_broken(
    profile: str, changes: dict[str, float | None], is_kept: bool
) -> None:
    assert PROMISES[QualityProfile(profile)].is_kept(_distance(**changes)) is is_kept


def test_a_weaker_profile_promises_no_more_than_a_stronger_one() -> None:
    strong, weak, weakest = (PROMISES[QualityProfile(p)] for p in ("consistent", "fast", "draft"))
    for stronger, weaker in ((strong, weak), (weak, weakest)):
        assert (stronger.min_projection or 0) > (weaker.min_projection or 0)
        assert (stronger.max_drift or 0) < (weaker.max_drift or math.inf)
    assert strong.needs_control
    assert not PROMISES[QualityProfile.FAITHFUL].needs_control
