"""How requests are grouped, ordered and priced; the quote and the worker read the same plan.

A work unit is one transformer forward of the model at its default size and length, weighted by
floating-point operations; decoding counts in the same unit. No torch, no clock, no randomness.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from engine.errors import InvalidRequest
from engine.registry import get_model
from engine.types import GenerationRequest, QualityProfile, RenderSettings, StageSeconds

_KEY_LENGTH = 32


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was measured for one model on one kind of device with one set of settings.

    `fork_steps` maps a parameter kind to the latest step at which variants may fork and still
    keep the profile's promise. `clip_units` are the work units of one exact render at these
    settings, so seconds of other sizes follow from their units.
    """

    weights_fingerprint: str
    device_kind: str
    width: int
    height: int
    num_frames: int
    solver: str
    num_inference_steps: int
    guidance_scale: float
    profile: QualityProfile
    step_seconds: float
    text_seconds: float
    decode_seconds: float
    clip_units: float
    fork_steps: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def clip_seconds(self) -> float:
        """Seconds of one exact render."""
        return (
            self.text_seconds + self.num_inference_steps * self.step_seconds + self.decode_seconds
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRequest:
    """One request's place and price: `work_units` alone, `shared_units` as this plan renders it."""

    request_id: str
    plan_order: int
    work_units: float
    shared_units: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanGroup:
    """Requests that one worker claims together and renders in the order of `members`."""

    group_key: str
    affinity_key: str
    members: tuple[PlannedRequest, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All groups; `full_units` and `shared_units` are the sums over all members.

    `unit_price_by_parameter` says what a variant with one more value of that parameter costs,
    in clips (1.0 = as much as a whole render).
    """

    groups: tuple[PlanGroup, ...]
    full_units: float
    shared_units: float
    unit_price_by_parameter: Mapping[str, float]


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


def clip_units(settings: RenderSettings) -> float:
    """Work units of one exact render: all forwards and the decode."""
    spec = get_model(settings.model_id)
    default = spec.sizes[0]
    reference_flops = spec.cost.forward_flops(
        spec.cost.num_tokens(
            width=default.width, height=default.height, num_frames=spec.default_frames
        )
    )
    tokens = spec.cost.num_tokens(
        width=settings.width, height=settings.height, num_frames=settings.num_frames
    )
    forwards = settings.num_inference_steps * settings.forwards_per_step
    pixels = settings.width * settings.height * settings.num_frames
    flops = forwards * spec.cost.forward_flops(tokens) + spec.cost.decode_flops * pixels
    return flops / reference_flops


def plan(
    requests: Iterable[GenerationRequest],
    *,
    calibration: Calibration | None = None,
    max_group: int = 64,
) -> Plan:
    """Group requests by affinity, order and price each group; equal input gives an equal plan.

    Every profile is planned as exact here: requests share work only where they ask for the same
    pixels, which are rendered once. Groups hold at most `max_group` members; larger families are
    cut. `calibration` carries fork steps, which an exact plan does not use.
    """
    if max_group < 1:
        raise InvalidRequest("max_group", f"max_group is {max_group}; choose 1 or more.")
    families: dict[str, dict[str, list[GenerationRequest]]] = {}
    units_by_settings: dict[RenderSettings, float] = {}
    names: dict[str, float] = {}
    for request in requests:
        if request.settings not in units_by_settings:
            units_by_settings[request.settings] = clip_units(request.settings)
        names.update(dict.fromkeys((slot.name for slot in request.slots), 1.0))
        # Requests for the same pixels stand beside each other, so one render serves them all.
        twins = families.setdefault(affinity_key(request), {})
        twins.setdefault(request.prompt, []).append(request)
    groups: list[PlanGroup] = []
    for key, twins in families.items():
        ordered = [request for same in twins.values() for request in same]
        groups += (
            _group(key, ordered[start : start + max_group], units_by_settings)
            for start in range(0, len(ordered), max_group)
        )
    members = [member for group in groups for member in group.members]
    return Plan(
        groups=tuple(groups),
        full_units=sum(member.work_units for member in members),
        shared_units=sum(member.shared_units for member in members),
        unit_price_by_parameter=MappingProxyType(names),
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
    key: str, requests: Sequence[GenerationRequest], units: Mapping[RenderSettings, float]
) -> PlanGroup:
    members: list[PlannedRequest] = []
    rendered: set[str] = set()
    for order, request in enumerate(requests):
        work_units = units[request.settings]
        is_rendered = request.prompt in rendered
        rendered.add(request.prompt)
        members.append(
            PlannedRequest(
                request_id=request.request_id,
                plan_order=order,
                work_units=work_units,
                shared_units=0.0 if is_rendered else work_units,
            )
        )
    # The members are part of the key, so what is left of a group and planned anew gets a new key.
    group_key = _digest((key, [member.request_id for member in members]))
    return PlanGroup(group_key=group_key, affinity_key=key, members=tuple(members))


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
