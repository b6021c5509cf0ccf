"""Measures one cell: seconds and memory of a side, or the quality of what it renders."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.campaign.families import Family
from bench.campaign.plain import Clips, PlainDiffusers, Side
from engine.distances import drift, psnr_db, ssim
from engine.guarded import control_of
from engine.media import encode_video
from engine.tiny.classifier import Judge, read_attributes
from engine.types import QualityProfile

# Equal clips are infinitely close; tables and medians need a number.
MAX_PSNR_DB = 99.0
_PATCH = 16


def measure_speed(side: Side, family: Family, *, runs: int, clock: str) -> dict[str, Any]:
    """Seconds per variant (median of the runs), forwards per variant, peak memory of the process.

    Before the runs, one small render warms up what is made once. `stages` are wall seconds per
    variant of the last run, whatever the clock; "overhead" is what no stage accounts for.
    """
    now = time.process_time if clock == "cpu" else time.perf_counter
    requests = family.requests(side.profile)
    if side.warm_up is not None:
        side.warm_up()
    side.render(requests[:1])
    seconds: list[float] = []
    _reset_peak()
    for _ in range(runs):
        started, wall_started = now(), time.perf_counter()
        rendered = side.render(requests)
        wall = time.perf_counter() - wall_started
        seconds.append((now() - started) / len(requests))
    stages = {name: value / len(requests) for name, value in rendered.stages.items()}
    return {
        "seconds": statistics.median(seconds),
        "runs": seconds,
        "forwards": rendered.forwards / len(requests),
        "peak_mb": _peak_mb(),
        "stages": stages
        | {
            "overhead": wall / len(requests) - sum(stages.values()),
            "encode": _encode_seconds(rendered.clips[0], fps=requests[0].settings.fps),
        },
    }


def measure_setting(side: Side, family: Family, *, exact: Clips, clock: str) -> dict[str, Any]:
    """One setting of a peer: seconds per variant of a single run, and how close it stays."""
    now = time.process_time if clock == "cpu" else time.perf_counter
    requests = family.requests(side.profile)
    if side.warm_up is not None:
        side.warm_up()
    started = now()
    rendered = side.render(requests)
    seconds = now() - started
    pairs = list(zip(rendered.clips, exact, strict=True))
    return {
        "seconds": seconds / len(requests),
        "forwards": rendered.forwards / len(requests),
        "psnr_p50": statistics.median(min(MAX_PSNR_DB, psnr_db(*pair)) for pair in pairs),
        "ssim_p50": statistics.median(ssim(*pair) for pair in pairs),
    }


def measure_quality(
    side: Side, family: Family, *, exact: Clips, judge: Judge
) -> list[dict[str, Any]]:
    """For each variant: closeness to its exact render, values read rightly, drift from control."""
    requests = family.requests(side.profile)
    clips = side.render(requests).clips
    read = read_attributes(judge, np.stack(clips))
    read_exact = read_attributes(judge, np.stack(exact))
    control = requests.index(control_of(requests))
    rows: list[dict[str, Any]] = []
    for at, wanted in enumerate(family.wanted()):
        row: dict[str, Any] = {
            "psnr_db": min(MAX_PSNR_DB, psnr_db(clips[at], exact[at])),
            "ssim": ssim(clips[at], exact[at]),
            "right": {name: read[at][name] == value for name, value in wanted.items()},
            "right_exact": {name: read_exact[at][name] == value for name, value in wanted.items()},
        }
        if at != control:
            change, exact_change = (
                _patches(each[at]) - _patches(each[control]) for each in (clips, exact)
            )
            row["drift"] = drift(change, exact_change)
        rows.append(row)
    return rows


def exact_clips(plain: PlainDiffusers, family: Family, folder: Path) -> Clips:
    """The family's exact renders by plain diffusers, kept in a file for later cells."""
    path = folder / f"exact-{family.key}.npz"
    if not path.exists():
        clips = plain.loop(family.requests(QualityProfile.EXACT)).clips
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, clips=np.stack(clips))
    with np.load(path) as stored:
        return list(stored["clips"])


def _encode_seconds(clip: NDArray[np.uint8], *, fps: int) -> float:
    """Wall seconds to write one clip as MP4."""
    with tempfile.TemporaryDirectory(prefix="adloom-bench-") as folder:
        started = time.perf_counter()
        encode_video(clip, fps, Path(folder) / "clip.mp4")
        return time.perf_counter() - started


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
