"""Fork steps: up to which denoising step the values of a parameter share their way; no torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from engine.types import GenerationRequest, PromptSlot, QualityProfile

# Fork steps as a fraction of all steps, until a Calibration has measured them. They are careful: on
# the built-in model (30 steps, 4 values each, 2 prompts) a single shared step took a place from 39
# to 30 dB or less and a backdrop to 27 dB, so `faithful` shares none. The change that was asked for
# came in full measure (0.7 and more) up to four steps for a backdrop and two for a place.
DEFAULT_FORKS: Final[Mapping[QualityProfile, Mapping[str, float]]] = MappingProxyType(
    {
        QualityProfile.EXACT: {},
        QualityProfile.FAITHFUL: {},
        QualityProfile.CONSISTENT: {
            "geography": 0.04,
            "audience": 0.04,
            "backdrop": 0.1,
            "choice": 0.04,
            "text": 0.04,
        },
        QualityProfile.FAST: {
            "geography": 0.07,
            "audience": 0.07,
            "backdrop": 0.14,
            "choice": 0.07,
            "text": 0.07,
        },
        QualityProfile.DRAFT: {
            "geography": 0.1,
            "audience": 0.1,
            "backdrop": 0.2,
            "choice": 0.1,
            "text": 0.1,
        },
    }
)


def settle_forks(
    requests: Sequence[GenerationRequest],
    *,
    fork_steps: Mapping[str, int],
    varying: Collection[str] = (),
) -> list[GenerationRequest]:
    """Give each slot of one family its fork step, by kind from `fork_steps` (others: 0).

    Slots that have a fork step keep it. A slot whose value is the same for all requests at a
    node is conditioned on from that node on: leaving its words out would save nothing. `varying`
    names parameters that have other values in requests which are not given here.
    """
    open_ones = [
        request for request in requests if any(slot.fork_step is None for slot in request.slots)
    ]
    if not open_ones:
        return list(requests)
    steps = {slot.name: fork_steps.get(slot.kind, 0) for slot in open_ones[0].slots}
    values = [request.slot_values() for request in open_ones]
    elsewhere = {name for name in varying if len({each.get(name) for each in values}) == 1}
    settled: list[dict[str, int]] = [{} for _ in open_ones]
    _settle(range(len(open_ones)), 0, steps, _Family(values, elsewhere, settled))
    forks = {id(request): fork for request, fork in zip(open_ones, settled, strict=True)}
    return [
        with_fork_steps(request, forks[id(request)]) if id(request) in forks else request
        for request in requests
    ]


def with_fork_steps(request: GenerationRequest, fork_steps: Mapping[str, int]) -> GenerationRequest:
    """The request with a fork step for each slot that has none; slots not named fork at 0."""
    return replace(
        request, slots=tuple(_forked(slot, fork_steps.get(slot.name, 0)) for slot in request.slots)
    )


def default_fork_steps(profile: QualityProfile, num_inference_steps: int) -> dict[str, int]:
    """Fork steps by parameter kind before anything was measured; kinds not named share nothing."""
    return {
        kind: int(fraction * num_inference_steps)
        for kind, fraction in DEFAULT_FORKS[profile].items()
    }


@dataclass(frozen=True, slots=True)
class _Family:
    """What settling reads and writes, by the request's place."""

    values: Sequence[Mapping[str, str]]
    elsewhere: Collection[str]
    settled: Sequence[dict[str, int]]

    def is_constant(self, name: str, members: Sequence[int]) -> bool:
        first = self.values[members[0]][name]
        return name not in self.elsewhere and all(
            self.values[member][name] == first for member in members
        )


def _settle(members: Sequence[int], start: int, steps: Mapping[str, int], family: _Family) -> None:
    """Settle the names in `steps` for requests that share their way up to `start`."""
    constant = [name for name in steps if family.is_constant(name, members)]
    open_steps = {name: step for name, step in steps.items() if name not in constant}
    fork = min(open_steps.values(), default=start)
    forking = [name for name, step in open_steps.items() if step == fork]
    groups: dict[tuple[str, ...], list[int]] = {}
    for member in members:
        settled = family.settled[member]
        settled.update(dict.fromkeys(constant, start))
        settled.update(dict.fromkeys(forking, fork))
        values = family.values[member]
        groups.setdefault(tuple(values[name] for name in forking), []).append(member)
    later = {name: step for name, step in open_steps.items() if step > fork}
    if later:
        for group in groups.values():
            _settle(group, fork, later, family)


def _forked(slot: PromptSlot, fork_step: int) -> PromptSlot:
    if slot.fork_step is not None:
        return slot
    # `replace` takes several times as long, and a quote does this for every slot of a batch.
    return PromptSlot(
        name=slot.name, kind=slot.kind, value=slot.value, span=slot.span, fork_step=fork_step
    )
