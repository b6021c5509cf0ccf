"""The quote of a batch as its page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.access import Actor
from app.models import Batch, ExpansionMode, Quote
from app.services import batches, schedules
from app.services.quotes import QuoteValue
from app.services.specs import BatchSpec, SpecParameter
from app.web.facts import mode_words, settings_facts
from app.web.known_words import unknown_values
from app.web.presets import PROFILES
from app.web.samples import sample_prompts
from app.web.tiles import spec_of
from engine.registry import MIN_DRAFT_STEP, get_model
from engine.types import QualityProfile


@dataclass(frozen=True, kw_only=True)
class ParameterPrice:
    """What one more value of a parameter costs.

    `added` is how many variants it brings, `clips` what each of them takes in full clips, and
    `cost_micros` the price of all of them.
    """

    name: str
    kind: str
    values: int | None
    added: int
    clips: float | None
    cost_micros: int | None


@dataclass(frozen=True, kw_only=True)
class ProfilePrice:
    """What the batch costs with a quality, and how long one worker needs; seconds may be None.

    `is_estimate` where the price was made of a part of a large batch.
    """

    profile: QualityProfile
    name: str
    text: str
    cost_micros: int
    seconds: float | None
    is_chosen: bool
    is_estimate: bool


# From the closest promise on.
CLOSENESS = (
    QualityProfile.EXACT,
    QualityProfile.FAITHFUL,
    QualityProfile.CONSISTENT,
    QualityProfile.FAST,
    QualityProfile.DRAFT,
)


def quote_context(session: Session, actor: Actor, batch: Batch) -> dict[str, Any]:
    spec = spec_of(batch)
    quote = batches.get_progress(session, actor, batch.id).quote
    facts = [("Combined", mode_words(batch.mode))]
    facts += settings_facts(spec.settings.model_dump(mode="json"), seed=spec.seed)
    if spec.rules:
        facts.append(("Left out", "; ".join(map(str, spec.rules))))
    if spec.takes > 1:
        facts.append(("Takes", str(spec.takes)))
    qualities = profile_prices(quote, spec.settings.profile)
    unit_prices: dict[str, float] = quote.details.get("unit_price_by_parameter", {})
    return {
        "quote": quote,
        "drafts": quote.details.get("drafts"),
        "finish_micros": quote.details.get("finish_cost_micros"),
        "is_draft": spec.settings.draft_step is not None,
        "can_draft": spec.drafts_batch_id is None
        and spec.settings.num_inference_steps > MIN_DRAFT_STEP,
        "guard_micros": _guard_cost(quote, spec.settings.profile),
        "saved_micros": quote.full_cost_micros - quote.cost_micros,
        "samples": sample_prompts(session, batch, spec),
        "unknown": unknown_values(session, batch, spec),
        "schedules": schedules.list_schedules(session, actor, batch_id=batch.id),
        "model_label": get_model(spec.settings.model_id).label,
        "noun": "image" if spec.settings.task.is_image else "clip",
        "settings_facts": facts,
        "qualities": qualities,
        "better": find_better(qualities),
        # Drafts are finished as they are: no value can be added to them.
        "prices": []
        if spec.drafts_batch_id
        else [
            _parameter_price(item, quote, spec, unit_prices.get(item.name))
            for item in spec.parameters
        ],
    }


def _parameter_price(
    item: SpecParameter, quote: Quote, spec: BatchSpec, clips: float | None
) -> ParameterPrice:
    is_crossed = spec.mode is ExpansionMode.CARTESIAN and bool(item.values)
    added = quote.variant_count // len(item.values) if is_crossed else spec.takes
    return ParameterPrice(
        name=item.name,
        kind=item.kind,
        values=len(item.values) or None,
        added=added,
        clips=clips,
        cost_micros=_clip_cost(quote, None if clips is None else clips * added),
    )


def _guard_cost(quote: Quote, chosen: QualityProfile) -> int:
    """What checks by exact renders are expected to cost, as a part of the price."""
    own: dict[str, Any] = quote.details.get("profiles", {}).get(chosen, {})
    return int(own.get("guard_cost_micros", 0))


def profile_prices(quote: Quote | QuoteValue, chosen: QualityProfile) -> list[ProfilePrice]:
    """The chosen quality first, then those that the quote compares it with."""
    prices: dict[str, Any] = quote.details.get("profiles", {})
    words = {profile: (name, text) for profile, name, text in PROFILES}
    return [
        ProfilePrice(
            profile=profile,
            name=words[profile][0],
            text=words[profile][1],
            cost_micros=prices[profile]["cost_micros"],
            seconds=prices[profile].get("estimated_s"),
            is_chosen=profile is chosen,
            is_estimate=prices[profile].get("is_estimate", False),
        )
        for profile in dict.fromkeys((chosen, *words))
        if profile in prices
    ]


def find_better(qualities: Sequence[ProfilePrice]) -> ProfilePrice | None:
    """The cheapest quality that promises more than the chosen one for less; None mostly.

    The checks of a small batch may cost more than what its quality lets it share.
    """
    chosen = qualities[0]
    better = [
        item
        for item in qualities[1:]
        if item.cost_micros < chosen.cost_micros
        and not item.is_estimate
        and CLOSENESS.index(item.profile) < CLOSENESS.index(chosen.profile)
    ]
    return min(better, key=lambda item: item.cost_micros, default=None)


def _clip_cost(quote: Quote, clips: float | None) -> int | None:
    """The price of so many full clips of this batch."""
    if clips is None or not quote.variant_count:
        return None
    return round(clips * quote.full_cost_micros / quote.variant_count)
