"""How far renders are apart: two in pixels, a variant and its control in latents."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

# The tokens that change least between exact renders: what the parameter does not touch.
UNCHANGED_SHARE = 0.5
# Luma weights of ITU-R BT.601; window and constants of Wang et al. 2004.
_LUMA = (0.299, 0.587, 0.114)
_WINDOW = 11
_SIGMA = 1.5
_K1, _K2 = 0.01, 0.03
_PEAK = 255.0


def psnr_db(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> float:
    """Peak signal-to-noise ratio of two uint8 clips (F, H, W, 3); infinite for equal ones."""
    error = float(np.mean(np.square(left.astype(np.float32) - right)))
    return math.inf if error == 0 else 10 * math.log10(_PEAK**2 / error)


def ssim(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> float:
    """Structural similarity of two uint8 clips (F, H, W, 3): the mean over frames and places.

    Z. Wang, A. C. Bovik, H. R. Sheikh, E. P. Simoncelli, "Image Quality Assessment: From Error
    Visibility to Structural Similarity", IEEE Transactions on Image Processing 13(4), 2004; on
    luma, with its Gaussian window of 11 x 11.
    """
    x, y = _luma(left), _luma(right)
    mean_x, mean_y = _blurred(x), _blurred(y)
    variance_x = _blurred(x * x) - mean_x**2
    variance_y = _blurred(y * y) - mean_y**2
    covariance = _blurred(x * y) - mean_x * mean_y
    c1, c2 = (_K1 * _PEAK) ** 2, (_K2 * _PEAK) ** 2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    structure = (2 * covariance + c2) / (variance_x + variance_y + c2)
    return float((luminance * structure).mean())


def projection(change: torch.Tensor, exact_change: torch.Tensor) -> float:
    """The part of the asked change that came: 1 for all of it, 0 where the control came back.

    A change is the latents of a variant minus those of its control, from two renders of one run;
    `exact_change` is that of both exact renders. 1 where no change was asked for.
    """
    asked = exact_change.flatten().double()
    length = float(asked @ asked)
    return 1.0 if length == 0 else float(change.flatten().double() @ asked) / length


def drift(change: torch.Tensor, exact_change: torch.Tensor) -> float:
    """How far a variant moved from its control where it should not, against the exact renders.

    Changes are as in `projection`, of shape (1, C, ...): each place behind the channels is a
    token, and the half of them that changed least in the exact renders should stay as they are.
    The quotient of the root mean squares there; infinite where the exact renders do not move.
    """
    exact_ways, ways = _token_ways(exact_change), _token_ways(change)
    count = max(1, int(len(exact_ways) * UNCHANGED_SHARE))
    calm = exact_ways.argsort()[:count]
    moved, allowed = float(ways[calm].mean()), float(exact_ways[calm].mean())
    if moved == 0:
        return 0.0
    return math.inf if allowed == 0 else math.sqrt(moved / allowed)


def _token_ways(change: torch.Tensor) -> torch.Tensor:
    """Squared length of each token's change, flat."""
    return change.double().square().sum(dim=1).flatten()


def _luma(clip: NDArray[np.uint8]) -> torch.Tensor:
    """Luma of each frame, shape (F, 1, H, W)."""
    weights = torch.tensor(_LUMA, dtype=torch.float64)
    return (torch.from_numpy(np.asarray(clip)).double() @ weights).unsqueeze(1)


def _blurred(frames: torch.Tensor) -> torch.Tensor:
    """Gaussian means at all places whose window lies inside the frame."""
    offsets = torch.arange(_WINDOW, dtype=torch.float64) - _WINDOW // 2
    weights = torch.exp(-(offsets**2) / (2 * _SIGMA**2))
    weights /= weights.sum()
    rows = torch.nn.functional.conv2d(frames, weights.view(1, 1, -1, 1))
    return torch.nn.functional.conv2d(rows, weights.view(1, 1, 1, -1))
