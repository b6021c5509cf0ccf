"""Which variants of a group the guard renders again, to check the others by; no torch.

A check by exact renders sees all that a profile saves, and is dear. A screening compares a variant
with its own way, which shares nothing and is as quick as any other render: it sees what sharing
did, so it can look at every parameter that shares steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from engine.profiles import GUARD_EVERY, PROMISES
from engine.types import GenerationRequest, QualityProfile

# One in so many renders of a group is screened at most, beyond one of each parameter.
SCREEN_EVERY = 16
# Siblings of a failed variant that are screened at most.
MAX_SIBLINGS = 16
# A parameter's name and one of its values.
SeenValue = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardCheck:
    """A variant to render again, and a control beside it where its promise is about changes.

    `parameters` are the slots whose values differ between the two; without a control, all that
    share steps. They are rendered exactly, or for a screening each in its own way.
    """

    request_id: str
    control_id: str | None
    parameters: tuple[str, ...]
    is_exact: bool = True

    @property
    def request_ids(self) -> tuple[str, ...]:
        """All that are rendered again."""
        return (self.request_id,) if self.control_id is None else (self.request_id, self.control_id)


def guarded_ids(
    requests: Sequence[GenerationRequest],
    *,
    is_calibrated: bool,
    skips_steps: bool = False,
    every: int = GUARD_EVERY,
) -> tuple[str, ...]:
    """Ids of the requests of one group that the guard renders exactly: see `guard_checks`."""
    checks = guard_checks(
        requests, is_calibrated=is_calibrated, skips_steps=skips_steps, every=every
    )
    return tuple(dict.fromkeys(name for check in checks for name in check.request_ids))


def guard_checks(
    requests: Sequence[GenerationRequest],
    *,
    is_calibrated: bool,
    skips_steps: bool = False,
    every: int = GUARD_EVERY,
) -> tuple[GuardCheck, ...]:
    """Choose one in `every` renders (0: none), of an uncalibrated group at least one and control.

    The requests are of one family, with settled forks; `skips_steps` says that a step cache is in
    use. Seeds and prompts decide, not ids: a quote has other ids than the jobs that it prices.
    """
    renders = _different_renders(requests)
    if not every or len(renders) < 2 or not is_approximate(requests, skips_steps=skips_steps):
        return ()
    control = None
    if PROMISES[requests[0].settings.profile].needs_control:
        control = control_of(renders)
        renders.remove(control)
        # It is rendered exactly too, so variants are chosen half as often.
        every *= 2
    chosen = [request for request in renders if _rank(request) % every == 0]
    if not chosen and not is_calibrated:
        chosen = [min(renders, key=_rank)]
    if control is None:
        return tuple(_alone(request) for request in chosen)
    return tuple(_beside(control, request) for request in chosen)


def screen_checks(
    requests: Sequence[GenerationRequest],
    *,
    seen: Collection[SeenValue] = (),
    every: int = GUARD_EVERY,
) -> tuple[GuardCheck, ...]:
    """Choose what is screened of a group: each parameter that shares steps, once in a family.

    Beyond that, values that no check has `seen`, as many as SCREEN_EVERY allows; those that share
    most steps come first, for they may have gone farthest astray. All are compared with one
    control, the nearest siblings to it in place of others with the same value.
    """
    forks = latest_forks(requests)
    values = {
        (slot.name, slot.value) for each in requests for slot in each.slots if forks[slot.name]
    }
    if not is_approximate(requests, skips_steps=False):
        return ()
    if not every or not values.difference(seen):
        return ()
    renders = _different_renders(requests)
    control = control_of(renders)
    nearest: dict[SeenValue, tuple[GenerationRequest, tuple[str, ...]]] = {}
    for request in sorted(renders, key=_rank):
        differing = tuple(_differing(request, control))
        own = request.slot_values()
        for key in ((name, own[name]) for name in differing if forks[name]):
            if key not in nearest or len(differing) < len(nearest[key][1]):
                nearest[key] = request, differing
    fresh = sorted((key for key in nearest if key not in seen), key=lambda key: -forks[key[0]])
    known = {name for name, _ in seen}
    firsts: dict[str, SeenValue] = {}
    for key in fresh:
        if key[0] not in known:
            firsts.setdefault(key[0], key)
    chosen = dict.fromkeys((*firsts.values(), *fresh))
    budget = max(len(firsts), len(renders) // SCREEN_EVERY)
    found = [nearest[key] for key in list(chosen)[:budget]]
    return tuple(dict.fromkeys(_beside(control, request, is_exact=False) for request, _ in found))


def sibling_checks(
    check: GuardCheck, requests: Sequence[GenerationRequest]
) -> tuple[GuardCheck, ...]:
    """Screenings of what may have failed like a screened variant.

    Those with the same values first, then one of each other value that shared the same edge; none
    that was part of the failed check.
    """
    renders = _different_renders(requests)
    by_id = {request.request_id: request for request in requests}
    failed = by_id[check.request_id]
    asked = failed.slot_values()
    known = [
        tuple(by_id[name].slot_values()[each] for each in check.parameters)
        for name in check.request_ids
    ]
    alike: list[GenerationRequest] = []
    others: dict[tuple[str, ...], GenerationRequest] = {}
    for request in renders:
        own = request.slot_values()
        if request.prompt == failed.prompt:
            continue
        if any(own.get(name) == asked[name] for name in check.parameters):
            alike.append(request)
        else:
            others.setdefault(tuple(own[name] for name in check.parameters), request)
    suspects = [*alike, *(each for values, each in others.items() if values not in known)]
    control = control_of(renders)
    return tuple(
        _beside(control, request, is_exact=False, blamed=check.parameters)
        for request in suspects[:MAX_SIBLINGS]
        if request.prompt != control.prompt
    )


def values_of(
    checks: Collection[GuardCheck], requests: Sequence[GenerationRequest]
) -> Iterator[SeenValue]:
    """The values that checks have looked at."""
    by_id = {request.request_id: request.slot_values() for request in requests}
    for check in checks:
        for name in check.parameters:
            yield from ((name, by_id[each][name]) for each in check.request_ids)


def control_of(requests: Sequence[GenerationRequest]) -> GenerationRequest:
    """The control of these requests of one family, whatever their order: the others follow it."""
    return min(requests, key=_rank)


def latest_forks(requests: Sequence[GenerationRequest]) -> dict[str, int]:
    """The latest fork step of each slot, by name."""
    forks: dict[str, int] = {}
    for slot in (slot for request in requests for slot in request.slots):
        forks[slot.name] = max(slot.fork_step or 0, forks.get(slot.name, 0))
    return forks


def is_approximate(requests: Sequence[GenerationRequest], *, skips_steps: bool) -> bool:
    """Whether a group is rendered in another way than exactly."""
    settings = requests[0].settings
    # A draft promises nothing: what it becomes is checked when it is finished.
    if settings.profile is QualityProfile.EXACT or settings.draft_step is not None:
        return False
    return skips_steps or any(slot.fork_step for request in requests for slot in request.slots)


def _different_renders(requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
    """The first request of each prompt: within a family equal prompts are equal pixels."""
    renders: dict[str, GenerationRequest] = {}
    for request in requests:
        renders.setdefault(request.prompt, request)
    return list(renders.values())


def _beside(
    control: GenerationRequest,
    request: GenerationRequest,
    *,
    is_exact: bool = True,
    blamed: Collection[str] = (),
) -> GuardCheck:
    """The check of a variant; the control is rendered again where the promise is about changes.

    Of the parameters that differ, those `blamed` for another failure come alone, if there are any.
    """
    differing = tuple(_differing(request, control))
    needs_control = PROMISES[request.settings.profile].needs_control
    return GuardCheck(
        request_id=request.request_id,
        control_id=control.request_id if needs_control else None,
        parameters=tuple(name for name in differing if name in blamed) or differing,
        is_exact=is_exact,
    )


def _alone(request: GenerationRequest) -> GuardCheck:
    names = dict.fromkeys(slot.name for slot in request.slots if slot.fork_step)
    return GuardCheck(request_id=request.request_id, control_id=None, parameters=tuple(names))


def _differing(left: GenerationRequest, right: GenerationRequest) -> Iterator[str]:
    others = right.slot_values()
    for name, value in left.slot_values().items():
        if others.get(name) != value:
            yield name


def _rank(request: GenerationRequest) -> int:
    text = f"{request.seed}\x1f{request.prompt}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
