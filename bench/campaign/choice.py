"""The best setting of each peer: the fastest that stays as close as `faithful` promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.campaign.plain import Side
from engine.profiles import PROMISES, Distance
from engine.types import QualityProfile

BOUND = PROMISES[QualityProfile.FAITHFUL]


def is_close(row: Mapping[str, Any]) -> bool:
    """Whether the medians of a side keep what `faithful` promises."""
    if "psnr_p50" not in row:
        return False
    return BOUND.is_kept(Distance(psnr_db=row["psnr_p50"], ssim=row["ssim_p50"]))


def best_settings(cells: Mapping[str, Any], sides: Sequence[Side], *, sweep: str) -> list[str]:
    """For each peer its best setting in the sweep, the fastest peer first; none that is not close.

    `sweep` is the key of the family that all settings were tried with.
    """
    best: dict[str, tuple[float, str]] = {}
    for side in sides:
        cell = cells.get(f"sweep|{side.name}|{sweep}", {})
        if is_close(cell):
            found = (cell["seconds"], side.name)
            best[side.peer] = min(found, best.get(side.peer, found))
    return [name for _, name in sorted(best.values())]
