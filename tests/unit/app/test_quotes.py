"""Quotes: what a batch costs before launch, from the plan that workers follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from app.errors import InvalidInput
from app.models import ExpansionMode, ParameterKind
from app.services import quotes
from app.services.calibrations import Measurements
from app.services.expansion import expand
from app.services.planning import charged_units
from app.services.quotes import QuoteValue, cost_micros, estimate
from app.services.specs import CHUNK_SIZE, MAX_GROUP, BatchSpec, SpecParameter, SpecSettings
from app.services.variants import VariantFactory
from engine.plan import calibrate, plan
from engine.registry import default_settings
from engine.types import GenerationRequest, QualityProfile, StageSeconds
from engine.units import clip_units

TEXT = "a red sneaker on {{ backdrop }}, {{ geography }}, for {{ audience }}"
RATE = 100


def make_spec(
    *, geographies: Sequence[str] = ("Paris", "Tokyo"), profile: str = "consistent"
) -> BatchSpec:
    values = {
        ParameterKind.BACKDROP: ("beach", "desert", "forest"),
        ParameterKind.GEOGRAPHY: tuple(geographies),
        ParameterKind.AUDIENCE: ("runners", "gamers"),
    }
    settings = default_settings("adloom-tiny", profile=QualityProfile(profile))
    return BatchSpec(
        parameters=tuple(
            SpecParameter(name=kind.value, kind=kind, values=given)
            for kind, given in values.items()
        ),
        mode=ExpansionMode.CARTESIAN,
        settings=SpecSettings(**settings.to_dict()),
    )


def make_requests(spec: BatchSpec) -> Iterator[GenerationRequest]:
    factory = VariantFactory(spec, text=TEXT, negative_text="", weights="w")
    for item in expand(spec.mode, spec.typed_values):
        yield factory.draft(item, ordinal=item.ordinal, take=0).to_request()


def quote(spec: BatchSpec, **options: object) -> QuoteValue:
    return estimate(spec, make_requests(spec), rate_micros_per_unit=RATE, currency="EUR", **options)


def test_a_quote_prices_exactly_the_partition_of_the_plan() -> None:
    spec = make_spec()
    planned = plan(make_requests(spec), max_group=MAX_GROUP)
    value = quote(spec)
    assert value.variant_count == 12
    assert value.full_units == pytest.approx(planned.full_units)
    members = [member for group in planned.groups for member in group.members]
    units = sum(charged_units(member) for member in members)
    assert value.shared_units == pytest.approx(units)
    assert value.cost_micros == cost_micros(units, RATE)
    assert value.full_cost_micros == cost_micros(planned.full_units, RATE)
    assert (value.currency, value.rate_micros_per_unit) == ("EUR", RATE)


def test_checks_by_exact_renders_are_a_part_of_the_price_which_tops_no_exact_render() -> None:
    value = quote(make_spec())
    own, exact = (value.details["profiles"][name] for name in ("consistent", "exact"))
    assert own["guard_units"] > 0, "nothing was measured, so a pair of the group is checked"
    assert exact["guard_units"] == 0
    planned = plan(make_requests(make_spec()), max_group=MAX_GROUP)
    members = [member for group in planned.groups for member in group.members]
    # Others are screened, which takes less than an exact render.
    checked = [member for member in members if member.guard_units >= member.work_units]
    assert len(checked) == 2
    for member in checked:
        assert charged_units(member) == member.work_units < member.shared_units + member.guard_units
    assert own["units"] < exact["units"]


def test_exact_variants_are_priced_as_their_plan_prices_them() -> None:
    spec = make_spec(profile="exact")
    value = quote(spec)
    planned = plan(make_requests(spec), max_group=MAX_GROUP)
    assert value.shared_units == pytest.approx(planned.shared_units)
    assert value.details["unit_price_by_parameter"] == planned.unit_price_by_parameter


def test_twelve_different_variants_cost_twelve_clips_alone() -> None:
    spec = make_spec()
    units = clip_units(spec.settings.to_render_settings())
    assert quote(spec).full_units == pytest.approx(12 * units)


def test_the_same_prompt_twice_is_paid_once() -> None:
    spec = make_spec(profile="exact")
    requests = list(make_requests(spec))
    value = estimate(spec, requests + requests, rate_micros_per_unit=RATE, currency="USD")
    assert value.variant_count == 24
    assert value.full_units == pytest.approx(2 * value.shared_units)


def test_weaker_promises_share_more_steps_and_cost_less() -> None:
    draft, consistent = (quote(make_spec(profile=name)) for name in ("draft", "consistent"))
    prices = draft.details["profiles"] | consistent.details["profiles"]
    # Without the checks: of a small batch they cost more the more there is to check.
    units = [
        prices[name]["units"] - prices[name]["guard_units"]
        for name in ("draft", "consistent", "faithful", "exact")
    ]
    assert units == sorted(units)
    assert units[0] < units[-1]


def test_each_parameter_and_each_profile_has_its_price() -> None:
    value = quote(make_spec(profile="fast"))
    assert set(value.details["unit_price_by_parameter"]) == {"backdrop", "geography", "audience"}
    assert set(value.details["profiles"]) == {"fast", "faithful", "exact", "consistent", "draft"}
    assert not any(price["is_estimate"] for price in value.details["profiles"].values())
    own = value.details["profiles"]["fast"]
    assert own["units"] == value.shared_units
    assert own["cost_micros"] == value.cost_micros
    assert own["estimated_s"] is None


def test_what_most_do_not_choose_is_priced_by_the_first_chunk_of_a_large_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quotes, "CHUNK_SIZE", 4)
    spec = make_spec()
    first = list(make_requests(spec))[:4]
    part = estimate(spec, first, rate_micros_per_unit=RATE, currency="EUR", varying=["backdrop"])
    prices = quote(spec, varying=["backdrop"]).details["profiles"]
    estimated = {name for name, price in prices.items() if price["is_estimate"]}
    assert estimated == {"fast", "draft"}
    for name in estimated:
        assert prices[name]["units"] == pytest.approx(3 * part.details["profiles"][name]["units"])
    assert quote(make_spec(profile="fast")).details["profiles"]["fast"]["is_estimate"] is False


def test_a_batch_larger_than_a_chunk_is_the_sum_of_its_chunks() -> None:
    spec = make_spec(geographies=[f"city {number}" for number in range(1_000)], profile="exact")
    # The last variants repeat the first, in another chunk and so in another group.
    requests = list(make_requests(spec))
    requests[-12:] = requests[:12]
    plans = [
        plan(requests[start : start + CHUNK_SIZE], max_group=MAX_GROUP)
        for start in range(0, len(requests), CHUNK_SIZE)
    ]
    assert len(plans) == 2
    value = estimate(spec, requests, rate_micros_per_unit=RATE, currency="USD")
    assert value.shared_units == pytest.approx(sum(item.shared_units for item in plans))
    assert value.shared_units > plan(requests, max_group=MAX_GROUP).shared_units * 1.001


def test_seconds_are_none_until_something_was_measured() -> None:
    value = quote(make_spec())
    assert value.estimated_s is None
    assert value.details["estimate_basis"] is None


def test_seconds_follow_from_a_measurement_which_is_named() -> None:
    spec = make_spec(profile="exact")
    calibration = calibrate(
        spec.settings.to_render_settings(),
        [StageSeconds(text=0.5, denoise=6.0, decode=1.5)],
        weights_fingerprint="w",
        device_kind="cpu",
        solver="UniPC",
    )
    value = quote(spec, measured=Measurements(calibrations=[calibration]))
    assert value.estimated_s == pytest.approx(12 * 8.0)
    assert value.details["estimate_basis"]["device_kind"] == "cpu"
    assert value.details["estimate_basis"]["clip_seconds"] == pytest.approx(8.0)
    # Time goes by units, whatever profile was measured; checks take theirs as well.
    profiles = value.details["profiles"]
    assert profiles["exact"]["estimated_s"] == pytest.approx(value.estimated_s)
    planned = plan(make_requests(make_spec(profile="faithful")), max_group=MAX_GROUP)
    share = (planned.shared_units + planned.guard_units) / planned.full_units
    assert profiles["faithful"]["estimated_s"] == pytest.approx(share * value.estimated_s)
    assert planned.guard_units > 0


def test_money_is_rounded_up_but_not_for_floating_point_noise() -> None:
    assert cost_micros(0.1 + 0.2, 10) == 3
    assert cost_micros(0.31, 10) == 4
    assert cost_micros(0.0, 10) == 0


def test_a_batch_without_variants_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no variants"):
        estimate(make_spec(), [], rate_micros_per_unit=RATE, currency="USD")
