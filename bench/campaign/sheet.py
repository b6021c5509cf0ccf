"""The contact sheet of the docs: a control and its siblings, exact renders above Adloom's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.campaign.families import Family
from bench.campaign.measure import exact_clips
from bench.campaign.sides import Bench
from engine.media import contact_sheet
from engine.types import QualityProfile

FAMILY = Family(varying="three", size=16)
COLUMNS = 8


def write_sheet(bench: Bench, folder: Path, *, work: Path, profile: QualityProfile) -> Path:
    """Write campaign-sheet.png: rows of exact renders, each above the same variants by Adloom."""
    exact = exact_clips(bench.plain, FAMILY, work)
    side = next(each for each in bench.profiles() if each.profile is profile)
    requests = FAMILY.requests(profile)
    ours = side.render(requests).clips
    names = [request.request_id for request in requests]
    tiles: list[NDArray[np.uint8]] = []
    labels: list[str] = []
    for start in range(0, len(requests), COLUMNS):
        for kind, clips in (("exact", exact), (str(profile), ours)):
            for name, clip in _row(names, clips, start):
                tiles.append(clip[len(clip) // 2])
                labels.append(f"{kind}: {name}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "campaign-sheet.png"
    contact_sheet(tiles, path, columns=COLUMNS, labels=labels)
    return path


def _row(
    names: list[str], clips: list[NDArray[np.uint8]], start: int
) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    return zip(names[start : start + COLUMNS], clips[start : start + COLUMNS], strict=True)
