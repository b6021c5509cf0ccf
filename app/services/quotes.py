"""The price of a batch before it is launched: planned work units times the workspace's rate.

The plan is made of the same requests, in the same chunks, as the expansion makes it, so the quote
prices exactly the groups that workers will claim.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from app.errors import InvalidInput
from app.services.planning import TermsBuilder
from app.services.specs import CHUNK_SIZE, BatchSpec
from engine.plan import Calibration, Plan, estimate_seconds
from engine.types import GenerationRequest, QualityProfile, RenderSettings

# Priced for every batch, beside its own profile.
COMPARED_PROFILES: Final = (
    QualityProfile.CONSISTENT,
    QualityProfile.FAITHFUL,
    QualityProfile.EXACT,
)


@dataclass(frozen=True, kw_only=True)
class QuoteValue:
    """A quote as the table of quotes keeps it.

    `full_*` is what all variants cost alone, `shared_units` and `cost_micros` what the plan
    costs. `details` holds `unit_price_by_parameter` (one more value, in clips), `profiles`
    (units and cost by profile), `estimate_basis` (how `estimated_s`, on one worker, was measured;
    both are None as long as nothing was measured) and `plan` (the terms that the expansion keeps
    to, `PlanTerms`).
    """

    variant_count: int
    full_units: float
    shared_units: float
    rate_micros_per_unit: int
    full_cost_micros: int
    cost_micros: int
    currency: str
    estimated_s: float | None
    details: dict[str, Any]


def estimate(
    spec: BatchSpec,
    requests: Iterable[GenerationRequest],
    *,
    rate_micros_per_unit: int,
    currency: str,
    varying: Collection[str] = (),
    calibration: Calibration | None = None,
) -> QuoteValue:
    """Price a batch from all its requests, which are read once, in order.

    `varying` names the parameters that have more than one value in the batch. InvalidInput when
    there is no request.
    """
    own = spec.settings.profile
    profiles = tuple(dict.fromkeys((own, *COMPARED_PROFILES)))
    totals = {profile: _Totals() for profile in profiles}
    builder = TermsBuilder(varying, find_calibration=lambda _: calibration)
    iterator = iter(requests)
    while chunk := list(islice(iterator, CHUNK_SIZE)):
        for profile in profiles:
            asked = chunk if profile is own else list(_with_profile(chunk, profile))
            totals[profile].add(builder.plan(asked), len(chunk))
    total = totals[own]
    if not total.variant_count:
        raise InvalidInput("There is nothing to render: the batch has no variants.")
    prices = {
        profile.value: {
            "units": each.shared_units,
            "cost_micros": cost_micros(each.shared_units, rate_micros_per_unit),
        }
        for profile, each in totals.items()
    }
    seconds, basis = _seconds(total.shared_units, calibration)
    return QuoteValue(
        variant_count=total.variant_count,
        full_units=total.full_units,
        shared_units=total.shared_units,
        rate_micros_per_unit=rate_micros_per_unit,
        full_cost_micros=cost_micros(total.full_units, rate_micros_per_unit),
        cost_micros=cost_micros(total.shared_units, rate_micros_per_unit),
        currency=currency,
        estimated_s=seconds,
        details={
            "unit_price_by_parameter": total.unit_prices(),
            "profiles": prices,
            "estimate_basis": basis,
            "plan": builder.terms.of_profile(own).to_json(),
        },
    )


def cost_micros(units: float, rate_micros_per_unit: int) -> int:
    """Millionths of the currency, rounded up; noise of the sum's last digits is not."""
    return math.ceil(round(units * rate_micros_per_unit, 3))


class _Totals:
    """Sums over the plans of all chunks for one profile."""

    def __init__(self) -> None:
        self.variant_count = 0
        self.full_units = 0.0
        self.shared_units = 0.0
        self._weighted_prices: dict[str, float] = {}
        self._weights: dict[str, int] = {}

    def add(self, planned: Plan, count: int) -> None:
        self.variant_count += count
        self.full_units += planned.full_units
        self.shared_units += planned.shared_units
        for name, price in planned.unit_price_by_parameter.items():
            self._weighted_prices[name] = self._weighted_prices.get(name, 0.0) + price * count
            self._weights[name] = self._weights.get(name, 0) + count

    def unit_prices(self) -> dict[str, float]:
        """What one more value costs, in clips: the mean over the chunks, by their variants."""
        return {name: sum_ / self._weights[name] for name, sum_ in self._weighted_prices.items()}


def _with_profile(
    requests: Sequence[GenerationRequest], profile: QualityProfile
) -> Iterator[GenerationRequest]:
    changed: dict[RenderSettings, RenderSettings] = {}
    for request in requests:
        settings = changed.get(request.settings)
        if settings is None:
            settings = changed[request.settings] = replace(request.settings, profile=profile)
        yield replace(request, settings=settings)


def _seconds(
    units: float, calibration: Calibration | None
) -> tuple[float | None, Mapping[str, Any] | None]:
    """Seconds on one worker and what they rest on; None for both without a measurement."""
    if calibration is None:
        return None, None
    basis = {
        "device_kind": calibration.device_kind,
        "clip_seconds": calibration.clip_seconds,
        "width": calibration.width,
        "height": calibration.height,
        "num_frames": calibration.num_frames,
    }
    return estimate_seconds(units, calibration=calibration), basis
