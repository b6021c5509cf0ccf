"""The price of a batch before it is launched: planned work units times the workspace's rate.

The plan is made of the same requests, in the same chunks, as the expansion makes it, so the quote
prices exactly the groups that workers will claim.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from app.errors import InvalidInput
from app.services.calibrations import NOTHING_MEASURED, Measurements
from app.services.planning import PlanTerms, TermsBuilder, charged_units
from app.services.specs import CHUNK_SIZE, BatchSpec
from engine.plan import Calibration, Plan, estimate_seconds
from engine.skipping import edge_forwards
from engine.types import GenerationRequest, QualityProfile, RenderSettings
from engine.units import clip_units, forward_units

# Priced for every batch, beside its own profile.
COMPARED_PROFILES: Final = (QualityProfile.FAITHFUL, QualityProfile.EXACT)
# So are these, but of a batch of several chunks by the first one: a plan of all takes long.
SAMPLED_PROFILES: Final = (QualityProfile.CONSISTENT, QualityProfile.FAST, QualityProfile.DRAFT)


@dataclass(frozen=True, kw_only=True)
class QuoteValue:
    """A quote as the table of quotes keeps it.

    `full_*` is what all variants cost alone, `shared_units` and `cost_micros` what the plan
    costs. `details` holds `unit_price_by_parameter` (one more value, in clips), `profiles`
    (units, cost and seconds by profile, the guard's part of them, and whether they are only an
    estimate), `estimate_basis` (how
    `estimated_s`, on one worker, was measured; both are None as long as nothing was measured) and
    `plan` (the terms that the expansion keeps to, `PlanTerms`).
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


@dataclass(frozen=True, kw_only=True)
class Rate:
    """What a work unit costs in a workspace."""

    micros_per_unit: int
    currency: str


@dataclass(frozen=True, kw_only=True)
class Drafted:
    """Renders of drafts: those that go on from a state after `step`, and those begun anew."""

    step: int
    kept: Sequence[GenerationRequest]
    anew: Sequence[GenerationRequest]


def estimate(
    spec: BatchSpec,
    requests: Iterable[GenerationRequest],
    *,
    rate_micros_per_unit: int,
    currency: str,
    varying: Collection[str] = (),
    measured: Measurements = NOTHING_MEASURED,
) -> QuoteValue:
    """Price a batch from all its requests, which are read once, in order.

    `varying` names the parameters that have more than one value in the batch. InvalidInput when
    there is no request. The quote of drafts says what finishing all of them would cost.
    """
    own = spec.settings.profile
    step = spec.settings.draft_step
    compared = (*COMPARED_PROFILES, *SAMPLED_PROFILES) if step is None else ()
    profiles = tuple(dict.fromkeys((own, *compared)))
    sampled = {*SAMPLED_PROFILES} - {own}
    totals = {profile: _Totals() for profile in profiles}
    finish = _Totals()
    builder = TermsBuilder(varying, find_calibration=measured.find)
    iterator = iter(requests)
    while chunk := list(islice(iterator, CHUNK_SIZE)):
        for profile in profiles:
            if profile in sampled and totals[profile].variant_count:
                continue
            if profile is QualityProfile.EXACT and _are_different(chunk):
                totals[profile].add_alone(chunk)
                continue
            asked = chunk if profile is own else list(_with_profile(chunk, profile))
            totals[profile].add(builder.plan(asked), asked)
        if step is not None:
            rest = [replace(each, settings=each.settings.finished) for each in chunk]
            finish.add(builder.plan(rest, drafted_to=step), rest)
    if not totals[own].variant_count:
        raise InvalidInput("There is nothing to render: the batch has no variants.")
    rate = Rate(micros_per_unit=rate_micros_per_unit, currency=currency)
    value = _value(spec, totals, rate, measured=measured, terms=builder.terms)
    if step is None:
        return value
    rest_micros = cost_micros(finish.shared_units, rate_micros_per_unit)
    return replace(value, details=value.details | {"finish_cost_micros": rest_micros})


def estimate_finish(
    spec: BatchSpec, drafted: Drafted, rate: Rate, *, measured: Measurements
) -> QuoteValue:
    """Price renders that go on from drafts: their steps are not priced again.

    What the drafts computed stands in `details["drafts"]`: `variants` that go on from them,
    `steps` of all of these, their `cost_micros` and the ordinals that are rendered `anew`.
    """
    builder = TermsBuilder((), find_calibration=measured.find)
    total, step = _Totals(), drafted.step
    saved_units = 0.0
    for requests, drafted_to in ((drafted.kept, step), (drafted.anew, 0)):
        if requests:
            total.add(builder.plan(requests, drafted_to=drafted_to), requests)
    for settings, number in Counter(request.settings for request in drafted.kept).items():
        policy = builder.terms.by_settings[settings].step_cache
        forwards = edge_forwards(settings, policy, 0, step)
        saved_units += number * forwards * forward_units(settings)
    totals = {spec.settings.profile: total}
    value = _value(spec, totals, rate, measured=measured, terms=builder.terms)
    drafts = {
        "step": step,
        "variants": len(drafted.kept),
        "steps": step * len(drafted.kept),
        "cost_micros": cost_micros(saved_units, rate.micros_per_unit),
        "anew": [int(request.request_id) for request in drafted.anew],
    }
    return replace(value, details=value.details | {"drafts": drafts})


def cost_micros(units: float, rate_micros_per_unit: int) -> int:
    """Millionths of the currency, rounded up; noise of the sum's last digits is not."""
    return math.ceil(round(units * rate_micros_per_unit, 3))


def _value(
    spec: BatchSpec,
    totals: Mapping[QualityProfile, _Totals],
    rate: Rate,
    *,
    measured: Measurements,
    terms: PlanTerms,
) -> QuoteValue:
    """The quote of the batch's own profile, with the prices of all that were added up."""
    own = spec.settings.profile
    total, per_unit = totals[own], rate.micros_per_unit
    prices = {
        profile.value: _price(each, total.variant_count, per_unit, measured)
        for profile, each in totals.items()
    }
    return QuoteValue(
        variant_count=total.variant_count,
        full_units=total.full_units,
        shared_units=total.shared_units,
        rate_micros_per_unit=per_unit,
        full_cost_micros=cost_micros(total.full_units, per_unit),
        cost_micros=cost_micros(total.shared_units, per_unit),
        currency=rate.currency,
        estimated_s=total.seconds(measured),
        details={
            "unit_price_by_parameter": total.unit_prices(),
            "profiles": prices,
            "estimate_basis": _basis(measured.find_pace(spec.settings.to_render_settings())),
            "plan": terms.of_profile(own).to_json(),
        },
    )


def _price(
    totals: _Totals, variant_count: int, rate_micros_per_unit: int, measured: Measurements
) -> dict[str, Any]:
    """What so many variants cost in a profile of which all of them, or a part, was added."""
    share = variant_count / totals.variant_count
    units, guard_units = totals.shared_units * share, totals.guard_units * share
    seconds = totals.seconds(measured)
    return {
        "units": units,
        "cost_micros": cost_micros(units, rate_micros_per_unit),
        "guard_units": guard_units,
        "guard_cost_micros": cost_micros(guard_units, rate_micros_per_unit),
        "estimated_s": None if seconds is None else seconds * share,
        "is_estimate": totals.variant_count < variant_count,
    }


class _Totals:
    """Sums over the plans of all chunks for one profile."""

    def __init__(self) -> None:
        self.variant_count = 0
        self.full_units = 0.0
        self.shared_units = 0.0
        self.guard_units = 0.0
        self._units: dict[RenderSettings, float] = {}
        self._weighted_prices: dict[str, float] = {}
        self._weights: dict[str, int] = {}

    def add(self, planned: Plan, requests: Sequence[GenerationRequest]) -> None:
        count = len(requests)
        self.variant_count += count
        self.full_units += planned.full_units
        settings = {request.request_id: request.settings for request in requests}
        for group in planned.groups:
            units = 0.0
            for member in group.members:
                charged = charged_units(member)
                self.shared_units += charged
                self.guard_units += charged - member.shared_units
                units += member.shared_units + member.guard_units
            # A group is of one family, and so of one set of settings.
            key = settings[group.members[0].request_id]
            self._units[key] = self._units.get(key, 0.0) + units
        for name, price in planned.unit_price_by_parameter.items():
            self._weighted_prices[name] = self._weighted_prices.get(name, 0.0) + price * count
            self._weights[name] = self._weights.get(name, 0) + count

    def add_alone(self, requests: Sequence[GenerationRequest]) -> None:
        """Requests that share nothing with each other: what their plan says, without planning."""
        self.variant_count += len(requests)
        for settings, number in Counter(request.settings for request in requests).items():
            units = number * clip_units(settings)
            self.full_units += units
            self.shared_units += units
            self._units[settings] = self._units.get(settings, 0.0) + units
        for name in {slot.name for request in requests for slot in request.slots}:
            self._weighted_prices[name] = self._weighted_prices.get(name, 0.0) + len(requests)
            self._weights[name] = self._weights.get(name, 0) + len(requests)

    def seconds(self, measured: Measurements) -> float | None:
        """Seconds on one worker; None when nothing was measured."""
        seconds = 0.0
        for settings, units in self._units.items():
            calibration = measured.find_pace(settings)
            if calibration is None:
                return None
            seconds += estimate_seconds(units, calibration=calibration)
        return seconds

    def unit_prices(self) -> dict[str, float]:
        """What one more value costs, in clips: the mean over the chunks, by their variants."""
        return {name: sum_ / self._weights[name] for name, sum_ in self._weighted_prices.items()}


def _are_different(requests: Sequence[GenerationRequest]) -> bool:
    """Whether no two of them ask for the same pixels."""
    pixels = {
        (request.prompt, request.negative_prompt, request.seed, request.settings)
        for request in requests
    }
    return len(pixels) == len(requests)


def _with_profile(
    requests: Sequence[GenerationRequest], profile: QualityProfile
) -> Iterator[GenerationRequest]:
    changed: dict[RenderSettings, RenderSettings] = {}
    for request in requests:
        settings = changed.get(request.settings)
        if settings is None:
            settings = changed[request.settings] = replace(request.settings, profile=profile)
        yield replace(request, settings=settings)


def _basis(calibration: Calibration | None) -> Mapping[str, Any] | None:
    """What the seconds rest on."""
    if calibration is None:
        return None
    return {
        "device_kind": calibration.device_kind,
        "clip_seconds": calibration.clip_seconds,
        "width": calibration.width,
        "height": calibration.height,
        "num_frames": calibration.num_frames,
    }
