"""How requests are grouped, ordered and priced; the quote and the worker read the same plan.

No torch, no clock, no randomness.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from engine.calibration import Calibration as Calibration
from engine.errors import InvalidRequest
from engine.forks import default_fork_steps, settle_forks
from engine.guarded import guarded_ids
from engine.profiles import STEP_CACHES
from engine.tree import DenoisingTree, cut
from engine.types import (
    GenerationRequest,
    QualityProfile,
    RenderSettings,
    StageSeconds,
    StepCachePolicy,
)
from engine.units import clip_units, decode_units, step_units

_KEY_LENGTH = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRequest:
    """One request's place and price: `work_units` alone, `shared_units` as this plan renders it.

    `guard_units` come on top where the guard renders it exactly as well (`guarded_ids`).
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
    )
    return _digest(document)


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
    fork_steps_of: Callable[[RenderSettings], Mapping[str, int]] | None = None,
    is_calibrated: Callable[[RenderSettings], bool] | None = None,
) -> Plan:
    """Plan each family as a denoising tree, cut it into groups and price what each member takes.

    Groups hold at most `max_group` members, whole subtrees where possible. A group is priced as
    if its worker held nothing: edges that several groups share count in each. Equal sets of
    requests give equal plans. `varying` names parameters that have more values than these
    requests show, so that the chunks of a large family share their stem. `fork_steps_of` says the
    fork steps by parameter kind in place of `known_fork_steps`, for who has settled on them before;
    `is_calibrated` then says whether they were measured: if not, each group is guarded.
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
        if fork_steps_of is None:
            fork_steps: Mapping[str, int] = known_fork_steps(settings, calibration=calibration)
        else:
            fork_steps = fork_steps_of(settings)
        settled = settle_forks(family, fork_steps=fork_steps, varying=varying)
        guard = partial(
            guarded_ids,
            is_calibrated=is_calibrated(settings)
            if is_calibrated is not None
            else calibration is not None and calibration.fits(settings) and calibration.has_forks,
            skips_steps=known_step_cache(settings, calibration=calibration) is not None,
        )
        groups += (
            _group(key, each, tree, guarded=guard(each))
            for each, tree in cut(settled, max_group=max_group)
        )
        for name, price in _value_prices(family[0], fork_steps):
            prices[name] = max(price, prices.get(name, 0.0))
    members = [member for group in groups for member in group.members]
    return Plan(
        groups=tuple(groups),
        full_units=sum(member.work_units for member in members),
        shared_units=sum(member.shared_units for member in members),
        unit_price_by_parameter=MappingProxyType(prices),
        guard_units=sum(member.guard_units for member in members),
    )


def known_fork_steps(
    settings: RenderSettings, *, calibration: Calibration | None = None
) -> dict[str, int]:
    """Latest fork step by parameter kind: measured where the calibration fits, else the default."""
    steps = default_fork_steps(settings.profile, settings.num_inference_steps)
    if settings.profile is QualityProfile.EXACT:
        return steps
    if calibration is not None and calibration.fits(settings):
        steps |= calibration.fork_steps
    # A variant keeps at least its last step to itself.
    return {kind: min(step, settings.num_inference_steps - 1) for kind, step in steps.items()}


def known_step_cache(
    settings: RenderSettings, *, calibration: Calibration | None = None
) -> StepCachePolicy | None:
    """What a run may skip: measured where the calibration fits, else the profile's default."""
    if calibration is not None and calibration.fits(settings) and calibration.has_forks:
        return calibration.step_cache
    return STEP_CACHES[settings.profile]


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
    tree: DenoisingTree,
    *,
    guarded: Collection[str],
) -> PlanGroup:
    settings = requests[0].settings
    shares = _shares(tree, settings)
    work_units = clip_units(settings)
    members = tuple(
        PlannedRequest(
            request_id=request.request_id,
            plan_order=order,
            work_units=work_units,
            # An id given twice pays once: the second asks for the same render.
            shared_units=shares.pop(request.request_id, 0.0),
            fork_steps={slot.name: slot.fork_step for slot in request.slots if slot.fork_step},
            guard_units=work_units if request.request_id in guarded else 0.0,
        )
        for order, request in enumerate(requests)
    )
    # The members are part of the key, so what is left of a group and planned anew gets a new key.
    group_key = _digest((key, [member.request_id for member in members]))
    return PlanGroup(group_key=group_key, affinity_key=key, members=members)


def _shares(tree: DenoisingTree, settings: RenderSettings) -> dict[str, float]:
    """Work units by request: of each edge on its way an equal part with the other leaves there.

    The first request of a leaf pays for it; those that ask for the same pixels are left out.
    """
    unit, decode = step_units(settings), decode_units(settings)
    return {
        way[-1].members[0]: sum(edge.num_steps / edge.num_leaves for edge in way) * unit + decode
        for way in tree.ways()
    }


def _value_prices(
    request: GenerationRequest, fork_steps: Mapping[str, int]
) -> Iterator[tuple[str, float]]:
    """For each parameter what one more of its values adds, in clips: the steps after its fork."""
    settings = request.settings
    for slot in request.slots:
        fork = fork_steps.get(slot.kind, 0) if slot.fork_step is None else slot.fork_step
        yield slot.name, 1 - fork * step_units(settings) / clip_units(settings)


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
