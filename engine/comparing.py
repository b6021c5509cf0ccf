"""Compares renders with the exact renders of the same pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.distances import drift, projection, psnr_db, ssim
from engine.guarded import GuardCheck
from engine.leaves import Leaf
from engine.profiles import Distance
from engine.types import GenerationRequest, GenerationResult, QualityProfile, StageSeconds


def exactly(request: GenerationRequest) -> GenerationRequest:
    """The request for the exact render of the same pixels."""
    settings = replace(request.settings, profile=QualityProfile.EXACT)
    return replace(unshared(request), settings=settings)


def unshared(request: GenerationRequest) -> GenerationRequest:
    """The request for a render in its own way: nothing shared, steps skipped as before."""
    slots = tuple(replace(slot, fork_step=0) for slot in request.slots)
    return replace(request, slots=slots)


def compare(pairs: Sequence[tuple[Leaf, Leaf]]) -> list[Distance]:
    """Distances of renders from others of them: of a variant, and of its control if it has one.

    `pairs` are (render, exact), the variant's first; one run made both renders. What stands as
    exact may be the unshared renders.
    """
    seen: dict[str, float] = {}
    if len(pairs) == 2:
        (render, exact), (control, exact_control) = pairs
        change = render.latents - control.latents
        exact_change = exact.latents - exact_control.latents
        seen = {
            "projection": projection(change, exact_change),
            "drift": drift(change, exact_change),
        }
    return [
        Distance(
            psnr_db=psnr_db(render.result.frames, exact.result.frames),
            ssim=ssim(render.result.frames, exact.result.frames),
            **seen,
        )
        for render, exact in pairs
    ]


def summary(distances: Sequence[Distance]) -> dict[str, float]:
    """Medians and extremes of compared variants: `psnr_p50`, ..., `projection_min`, `drift_max`.

    Of equal frames the PSNR is infinite, which JSON cannot hold: such figures are left out.
    """
    if not distances:
        return {}
    psnr, ssims = ([getattr(each, name) for each in distances] for name in ("psnr_db", "ssim"))
    projections = [each.projection for each in distances if each.projection is not None]
    drifts = [each.drift for each in distances if each.drift is not None]
    found = {
        "psnr_p50": float(np.percentile(psnr, 50, method="lower")),
        "psnr_p5": float(np.percentile(psnr, 5, method="lower")),
        "ssim_p50": float(np.percentile(ssims, 50, method="lower")),
        "ssim_p5": float(np.percentile(ssims, 5, method="lower")),
        "projection_min": min(projections, default=math.inf),
        "drift_max": max(drifts, default=math.inf),
    }
    return {name: round(value, 4) for name, value in found.items() if math.isfinite(value)}


def record(check: GuardCheck, distance: Distance) -> dict[str, Any]:
    """What provenance keeps of a comparison, as plain values for JSON."""
    return {
        "reference": "exact" if check.is_exact else "unshared",
        "parameters": list(check.parameters),
        "projection": _rounded(distance.projection),
        "drift": _rounded(distance.drift),
        "psnr": _rounded(distance.psnr_db),
        "ssim": _rounded(distance.ssim),
    }


def _rounded(value: float | None) -> float | None:
    # JSON has no infinity: of equal frames the PSNR is None.
    return None if value is None or value == float("inf") else round(value, 4)


def charged(
    result: GenerationResult,
    others: Sequence[GenerationResult],
    *,
    shown: GenerationResult,
    spent_units: float,
) -> GenerationResult:
    """The render that is shown, with what it, the `others` and `spent_units` before took."""
    renders = (result, *others)
    guard_units = sum(other.work_units for other in others) + spent_units
    return replace(
        shown,
        request_id=result.request_id,
        seconds=StageSeconds(
            text=sum(each.seconds.text for each in renders),
            denoise=sum(each.seconds.denoise for each in renders),
            decode=sum(each.seconds.decode for each in renders),
        ),
        forwards_computed=sum(each.forwards_computed for each in renders),
        work_units=result.work_units + guard_units,
        guard_units=guard_units,
    )
