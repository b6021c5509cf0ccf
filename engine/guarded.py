"""Which variants of a group are rendered exactly as well, to check the others by; no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.profiles import GUARD_EVERY, PROMISES
from engine.types import GenerationRequest, QualityProfile


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardCheck:
    """A variant to render exactly, and a control beside it where its promise is about changes.

    `parameters` are the slots whose values differ between the two; without a control, all that
    share steps.
    """

    request_id: str
    control_id: str | None
    parameters: tuple[str, ...]

    @property
    def request_ids(self) -> tuple[str, ...]:
        """All that are rendered exactly."""
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
    needs_control = PROMISES[requests[0].settings.profile].needs_control
    ranks = [_rank(request) for request in renders]
    # A control is rendered exactly too, so pairs are chosen half as often.
    odds = every * 2 if needs_control else every
    chosen = [place for place, rank in enumerate(ranks) if rank % odds == 0]
    if not chosen and not is_calibrated:
        chosen = [ranks.index(min(ranks))]
    return tuple(
        _pair(renders, place, ranks[place] // odds) if needs_control else _alone(renders[place])
        for place in chosen
    )


def is_approximate(requests: Sequence[GenerationRequest], *, skips_steps: bool) -> bool:
    """Whether a group is rendered in another way than exactly."""
    if requests[0].settings.profile is QualityProfile.EXACT:
        return False
    return skips_steps or any(slot.fork_step for request in requests for slot in request.slots)


def _different_renders(requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
    """The first request of each prompt: within a family equal prompts are equal pixels."""
    renders: dict[str, GenerationRequest] = {}
    for request in requests:
        renders.setdefault(request.prompt, request)
    return list(renders.values())


def _pair(renders: Sequence[GenerationRequest], place: int, choice: int) -> GuardCheck:
    """A variant with the sibling that differs least from it, in one parameter at least.

    Which parameter that is changes from variant to variant, so a family's checks go round.
    """
    request = renders[place]
    differences = {
        other.request_id: tuple(_differing(request, other))
        for other in renders
        if other is not request
    }
    names = sorted({name for each in differences.values() for name in each})
    parameter = names[choice % len(names)]
    control_id = min(
        (name for name, each in differences.items() if parameter in each),
        key=lambda name: len(differences[name]),
    )
    return GuardCheck(
        request_id=request.request_id,
        control_id=control_id,
        parameters=differences[control_id],
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
