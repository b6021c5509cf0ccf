"""Measures one cell: seconds and memory of a side, or the quality of what it renders."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.campaign.families import Family
from bench.campaign.sides import Bench, Clips, Side
from engine.distances import drift, psnr_db, ssim
from engine.tiny.classifier import Judge, read_attributes
from engine.types import QualityProfile

# Equal clips are infinitely close; tables and medians need a number.
MAX_PSNR_DB = 99.0
_PATCH = 16


def measure_speed(side: Side, family: Family, *, runs: int, clock: str) -> dict[str, Any]:
    """Seconds per variant (median of the runs), forwards per variant, peak memory of the process.

    Before the runs, one small render warms up what is made once.
    """
    now = time.process_time if clock == "cpu" else time.perf_counter
    requests = family.requests(side.profile)
    side.render(requests[:1])
    seconds, forwards = [], 0.0
    _reset_peak()
    for _ in range(runs):
        started = now()
        forwards = side.render(requests).forwards
        seconds.append((now() - started) / len(requests))
    return {
        "seconds": statistics.median(seconds),
        "runs": seconds,
        "forwards": forwards / len(requests),
        "peak_mb": _peak_mb(),
    }


def measure_quality(
    side: Side, family: Family, *, exact: Clips, judge: Judge
) -> list[dict[str, Any]]:
    """For each variant: closeness to its exact render, values read rightly, drift."""
    clips = side.render(family.requests(side.profile)).clips
    read = read_attributes(judge, np.stack(clips))
    read_exact = read_attributes(judge, np.stack(exact))
    rows: list[dict[str, Any]] = []
    for at, wanted in enumerate(family.wanted()):
        row: dict[str, Any] = {
            "psnr_db": min(MAX_PSNR_DB, psnr_db(clips[at], exact[at])),
            "ssim": ssim(clips[at], exact[at]),
            "right": {name: read[at][name] == value for name, value in wanted.items()},
            "right_exact": {name: read_exact[at][name] == value for name, value in wanted.items()},
        }
        if at:
            row["drift"] = drift(
                _patches(clips[at]) - _patches(clips[0]), _patches(exact[at]) - _patches(exact[0])
            )
        rows.append(row)
    return rows


def exact_clips(bench: Bench, family: Family, folder: Path) -> Clips:
    """The family's exact renders by plain diffusers, kept in a file for later cells."""
    path = folder / f"exact-{family.key}.npz"
    if not path.exists():
        clips = bench.loop(family.requests(QualityProfile.EXACT)).clips
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, clips=np.stack(clips))
    with np.load(path) as stored:
        return list(stored["clips"])


def percentile(values: Sequence[float], share: float) -> float:
    return float(np.percentile(np.asarray(values), share))


def _patches(clip: NDArray[np.uint8]) -> torch.Tensor:
    """Mean colours (1, 3, F, H/16, W/16) of a clip's patches: what stands for its tokens."""
    frames = torch.from_numpy(clip).permute(0, 3, 1, 2).float()
    return torch.nn.functional.avg_pool2d(frames, _PATCH).transpose(0, 1).unsqueeze(0)


def _reset_peak() -> None:
    """Let Linux count the peak anew; elsewhere it is not reported."""
    path = Path("/proc/self/clear_refs")
    if path.exists():
        path.write_text("5")


def _peak_mb() -> float | None:
    path = Path("/proc/self/status")
    if not path.exists():
        return None
    line = next(line for line in path.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
