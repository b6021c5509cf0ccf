"""How requests are grouped, ordered and priced; the quote and the worker read the same plan.

No torch, no clock, no randomness.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from engine.calibration import Calibration as Calibration
from engine.errors import InvalidRequest
from engine.forks import settle_forks
from engine.guarded import SeenValue, guarded_ids, screen_checks, values_of
from engine.registry import get_model
from engine.skipping import edge_forwards
from engine.terms import FamilyTerms, known_terms
from engine.tree import DenoisingTree, Edge, cut
from engine.types import GenerationRequest, RenderSettings, StageSeconds
from engine.units import clip_units, decode_units, forward_units
from engine.worth import own_way_units

_KEY_LENGTH = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRequest:
    """One request's place and price: `work_units` alone, `shared_units` as this plan renders it.

    `guard_units` come on top where the guard renders it exactly as well (`guarded_ids`), or in its
    own way (`screen_checks`), as if one worker took all groups of a family.
    `fork_steps` by slot name is the request's way through the tree. A request that carries it
    (`engine.forks.with_fork_steps`) is planned the same again, whatever is left of its group.
    """

    request_id: str
    plan_order: int
    work_units: float
    shared_units: float
    fork_steps: Mapping[str, int]
    guard_units: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanGroup:
    """Requests that one worker claims together and renders in the order of `members`."""

    group_key: str
    affinity_key: str
    members: tuple[PlannedRequest, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All groups; `full_units`, `shared_units` and `guard_units` are the sums over all members.

    `unit_price_by_parameter` says what a variant with one more value of that parameter costs,
    in clips (1.0 = as much as a whole render).
    """

    groups: tuple[PlanGroup, ...]
    full_units: float
    shared_units: float
    unit_price_by_parameter: Mapping[str, float]
    guard_units: float = 0.0


def affinity_key(request: GenerationRequest) -> str:
    """Equal for requests that can share work: everything but the slots' values is the same.

    References count by their path, so a caller names them by content.
    """
    settings = request.settings
    document = (
        settings.model_id,
        settings.task,
        settings.width,
        settings.height,
        settings.num_frames,
        settings.num_inference_steps,
        settings.guidance_scale,
        settings.profile,
        request.seed,
        [path.as_posix() for path in request.references],
        request.negative_prompt,
        stem(request),
        *_further_inputs(request),
    )
    return _digest(document)


def _further_inputs(request: GenerationRequest) -> Iterator[object]:
    """What few requests have, so that the keys of the others stay as they are."""
    settings = request.settings
    if get_model(settings.model_id).reads_fps:
        yield ["fps", settings.fps]
    if settings.draft_step is not None:
        yield ["draft", settings.draft_step]
    for name in ("last_frame", "mask", "strength"):
        value = getattr(request, name)
        if value is not None:
            yield [name, value.as_posix() if isinstance(value, Path) else value]
    if request.loras:
        yield ["loras", [(lora.path.as_posix(), lora.weight) for lora in request.loras]]


def stem(request: GenerationRequest) -> str:
    """The prompt with each slot's value replaced by `{name}`: what all its siblings share."""
    parts: list[str] = []
    position = 0
    for slot in sorted(request.slots, key=lambda slot: slot.span):
        start, end = slot.span
        # Braces of the prompt itself are doubled, so a stem cannot be imitated by plain text.
        parts += (_escape(request.prompt[position:start]), "{", slot.name, "}")
        position = end
    parts.append(_escape(request.prompt[position:]))
    return "".join(parts)


def plan(
    requests: Iterable[GenerationRequest],
    *,
    calibration: Calibration | None = None,
    max_group: int = 64,
    varying: Collection[str] = (),
    terms_of: Callable[[RenderSettings], FamilyTerms] | None = None,
    drafted_to: int = 0,
) -> Plan:
    """Plan each family as a denoising tree, cut it into groups and price what each member takes.

    Groups hold at most `max_group` members, whole subtrees where possible. A group is priced as
    if its worker held nothing: edges that several groups share count in each. Equal sets of
    requests give equal plans. `varying` names parameters that have more values than these
    requests show, so that the chunks of a large family share their stem. `terms_of` says what
    families share and skip in place of `known_terms`, for who has settled on them before. The first
    `drafted_to` steps of all the requests were computed by drafts, and are not priced again.

    Units are those that a worker counts (`GenerationResult.work_units`), where its step cache
    follows a rule and the guard finds nothing to mend.
    """
    if max_group < 1:
        raise InvalidRequest("max_group", f"max_group is {max_group}; choose 1 or more.")
    families: dict[str, list[GenerationRequest]] = {}
    for request in requests:
        families.setdefault(affinity_key(request), []).append(request)
    groups: list[PlanGroup] = []
    prices: dict[str, float] = {}
    for key, family in families.items():
        settings = family[0].settings
        terms = terms_of(settings) if terms_of else known_terms(settings, calibration=calibration)
        settled = settle_forks(family, fork_steps=terms.fork_steps, varying=varying)
        seen: set[SeenValue] = set()
        groups += (
            _group(key, each, _shares(tree, settings, terms, drafted_to), terms=terms, seen=seen)
            for each, tree in cut(settled, max_group=max_group)
        )
        for name, price in _value_prices(family[0], terms):
            prices[name] = max(price, prices.get(name, 0.0))
    members = [member for group in groups for member in group.members]
    return Plan(
        groups=tuple(groups),
        full_units=sum(member.work_units for member in members),
        shared_units=sum(member.shared_units for member in members),
        unit_price_by_parameter=MappingProxyType(prices),
        guard_units=sum(member.guard_units for member in members),
    )


def calibrate(
    settings: RenderSettings,
    seconds: Sequence[StageSeconds],
    *,
    weights_fingerprint: str,
    device_kind: str,
    solver: str,
) -> Calibration:
    """Make a Calibration without fork steps from the stage times of finished exact renders.

    The medians are taken, so the first render's warm-up does not count.
    """
    if not seconds:
        raise InvalidRequest("seconds", "A calibration needs the times of at least one render.")
    return Calibration(
        weights_fingerprint=weights_fingerprint,
        device_kind=device_kind,
        width=settings.width,
        height=settings.height,
        num_frames=settings.num_frames,
        solver=solver,
        num_inference_steps=settings.num_inference_steps,
        guidance_scale=settings.guidance_scale,
        profile=settings.profile,
        step_seconds=_median([s.denoise for s in seconds]) / settings.num_inference_steps,
        text_seconds=_median([s.text for s in seconds]),
        decode_seconds=_median([s.decode for s in seconds]),
        clip_units=clip_units(settings),
    )


def estimate_seconds(units: float, *, calibration: Calibration) -> float:
    """Seconds that one worker of the calibration's kind needs for so many work units."""
    return units / calibration.clip_units * calibration.clip_seconds


def _group(
    key: str,
    requests: Sequence[GenerationRequest],
    shares: dict[str, float],
    *,
    terms: FamilyTerms,
    seen: set[SeenValue],
) -> PlanGroup:
    """One group with its prices; values that its screenings look at are added to `seen`."""
    settings = requests[0].settings
    work_units = clip_units(settings)
    guarded = guarded_ids(
        requests,
        is_calibrated=terms.is_calibrated,
        skips_steps=terms.step_cache is not None,
    )
    screens = screen_checks(requests, seen=seen)
    seen.update(values_of(screens, requests))
    screened = {name for check in screens for name in check.request_ids}
    own_way = own_way_units(settings, terms.step_cache)
    members = tuple(
        PlannedRequest(
            request_id=request.request_id,
            plan_order=order,
            work_units=work_units,
            # An id given twice pays once: the second asks for the same render.
            shared_units=shares.pop(request.request_id, 0.0),
            fork_steps={slot.name: slot.fork_step for slot in request.slots if slot.fork_step},
            guard_units=work_units * (request.request_id in guarded)
            + own_way * (request.request_id in screened),
        )
        for order, request in enumerate(requests)
    )
    # The members are part of the key, so what is left of a group and planned anew gets a new key.
    group_key = _digest((key, [member.request_id for member in members]))
    return PlanGroup(group_key=group_key, affinity_key=key, members=members)


def _shares(
    tree: DenoisingTree, settings: RenderSettings, terms: FamilyTerms, drafted_to: int
) -> dict[str, float]:
    """Work units by request: of each edge on its way an equal part with the other leaves there.

    The first request of a leaf pays for it; those that ask for the same pixels are left out.
    """
    unit, decode = forward_units(settings), decode_units(settings)

    def forwards(edge: Edge) -> float:
        first = max(edge.start, drafted_to)
        if first >= edge.stop:
            return 0.0
        return edge_forwards(settings, terms.step_cache, first, edge.stop, edge.start)

    return {
        way[-1].members[0]: unit * sum(forwards(edge) / edge.num_leaves for edge in way) + decode
        for way in tree.ways()
    }


def _value_prices(request: GenerationRequest, terms: FamilyTerms) -> Iterator[tuple[str, float]]:
    """For each parameter what one more of its values adds, in clips: what is run after its fork."""
    settings = request.settings
    stop = settings.last_step
    for slot in request.slots:
        fork = terms.fork_steps.get(slot.kind, 0) if slot.fork_step is None else slot.fork_step
        forwards = edge_forwards(settings, terms.step_cache, fork, stop)
        units = forwards * forward_units(settings) + decode_units(settings)
        yield slot.name, units / clip_units(settings)


def _digest(document: object) -> str:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH]


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _median(values: Sequence[float]) -> float:
    # Small inputs, and `statistics` costs an import of `decimal` and `fractions`.
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
