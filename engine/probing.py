"""The probes of a calibration: few variants that stand for many prompts, seeds and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.forks import with_fork_steps
from engine.plan import affinity_key, stem
from engine.stems import with_values
from engine.types import GenerationRequest

# Values of a parameter that are tried beside a control's, in one family and in all together.
MAX_VALUES = 3
VALUES_OF_ALL = 6


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A control and variants of it that differ in some parameters, by name."""

    requests: Sequence[GenerationRequest]
    names: frozenset[str]

    def forked(self, forks: Mapping[str, int]) -> list[GenerationRequest]:
        """The requests with fork steps by kind for the probed parameters."""
        return [
            with_fork_steps(
                request,
                {slot.name: forks[slot.kind] for slot in request.slots if slot.name in self.names},
            )
            for request in self.requests
        ]


@dataclass(frozen=True, kw_only=True)
class Probes:
    """What a calibration renders: `by_kind` varies one parameter each, `whole` is a family's all.

    A whole probe holds the control, all variants of one parameter, and some that differ in all.
    """

    by_kind: Mapping[str, list[Probe]]
    whole: list[Probe]
    num_prompts: int
    num_seeds: int

    @property
    def num_variants(self) -> int:
        """Variants that are compared with a control."""
        return sum(len(probe.requests) - 1 for probe in self.whole)


def make_probes(requests: Sequence[GenerationRequest]) -> Probes:
    """The probes of one family or several, which take turns to begin with another value.

    The more families, the fewer values of each: other prompts and seeds tell more.
    """
    families: dict[str, list[GenerationRequest]] = {}
    for request in requests:
        families.setdefault(affinity_key(request), []).append(request)
    kinds = {slot.name: slot.kind for request in requests for slot in request.slots}
    max_values = min(MAX_VALUES, max(1, -(-VALUES_OF_ALL // len(families))))
    by_kind: dict[str, list[Probe]] = {}
    whole: list[Probe] = []
    for turn, family in enumerate(families.values()):
        probes = list(find_probes(family, turn=turn, max_values=max_values))
        for probe in probes:
            (name,) = probe.names
            by_kind.setdefault(kinds[name], []).append(probe)
        if probes:
            whole.append(_whole(probes))
    return Probes(
        by_kind=by_kind,
        whole=whole,
        num_prompts=len({stem(request) for request in requests}),
        num_seeds=len({request.seed for request in requests}),
    )


def find_probes(
    requests: Sequence[GenerationRequest], *, turn: int = 0, max_values: int = MAX_VALUES
) -> Iterator[Probe]:
    """For each parameter that varies, a control and variants with a few other values.

    The control is the first request; in later turns it has the values that come next.
    """
    values: dict[str, list[str]] = {}
    for name in requests[0].slot_values():
        found = (slot.value for each in requests for slot in each.slots if slot.name == name)
        values[name] = list(dict.fromkeys(found))
    turned = {name: each[turn % len(each)] for name, each in values.items()}
    control = with_values(requests[0], turned) if turn else requests[0]
    own = control.slot_values()
    for name, each in values.items():
        start = turn % len(each)
        others = [v for v in (*each[start:], *each[:start]) if v not in own[name].split("\x1f")]
        if others:
            variants = [with_values(control, {name: value}) for value in others[:max_values]]
            yield Probe(requests=_numbered([control, *variants]), names=frozenset({name}))


def together(probes: Sequence[Probe]) -> Probe:
    """The control, and variants in which all parameters differ at once."""
    if len(probes) == 1:
        return probes[0]
    control = probes[0].requests[0]
    variants: list[GenerationRequest] = []
    for place in range(1, max(len(probe.requests) for probe in probes)):
        values: dict[str, str] = {}
        for probe in probes:
            (name,) = probe.names
            # A parameter with fewer values begins anew with them.
            chosen = 1 + (place - 1) % (len(probe.requests) - 1)
            values |= {s.name: s.value for s in probe.requests[chosen].slots if s.name == name}
        variants.append(with_values(control, values))
    names = frozenset().union(*(probe.names for probe in probes))
    return Probe(requests=_numbered([control, *variants]), names=names)


def _whole(probes: Sequence[Probe]) -> Probe:
    """All that was found for a family, in one tree."""
    joint = together(probes)
    found: dict[str, GenerationRequest] = {}
    for probe in (*probes, joint):
        for request in probe.requests:
            found.setdefault(request.prompt, request)
    return Probe(requests=_numbered(list(found.values())), names=joint.names)


def _numbered(requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
    return [
        replace(
            request,
            request_id=str(place),
            slots=tuple(replace(slot, fork_step=None) for slot in request.slots),
        )
        for place, request in enumerate(requests)
    ]
