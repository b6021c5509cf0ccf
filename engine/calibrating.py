"""Finds how much a family may share and skip and still keep its profile's promise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from engine.calibration import Calibration
from engine.comparing import compare, exactly
from engine.errors import EngineError, InvalidRequest
from engine.forks import with_fork_steps
from engine.plan import calibrate
from engine.profiles import PROMISES, STEP_CACHE_CANDIDATES
from engine.stems import Stems, with_values
from engine.tree_runner import Leaf, Manner, TreeRunner
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    QualityProfile,
    StemConditioning,
    StepCachePolicy,
)
from engine.watching import Watch

# Values of a parameter that are tried beside the control's.
MAX_VALUES = 3


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A control and variants of it that differ in some parameters, by name."""

    requests: Sequence[GenerationRequest]
    names: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """What is tried: fork steps and stems by parameter kind, and a step cache."""

    forks: Mapping[str, int]
    stems: Mapping[str, StemConditioning]
    step_cache: StepCachePolicy | None = None


class Calibrator:
    """Measures one family with one model, one profile after the other by the same exact renders.

    `work_units` are what its probe renders took so far.
    """

    def __init__(self, runner: TreeRunner, *, device_kind: str) -> None:
        self._runner = runner
        self._device_kind = device_kind
        self._exact: dict[str, Leaf] = {}
        self._forwards = 0.0
        self.work_units = 0.0

    def calibrate(self, requests: Sequence[GenerationRequest]) -> Calibration:
        """Calibrate with the values that the requests of one family show.

        For each parameter kind alone the latest fork and its best stem, then all parameters at
        once with earlier forks where they need it, then the most sparing step cache that still
        keeps the promise. InvalidRequest where nothing varies or the profile shares nothing.
        """
        units_before = self.work_units
        settings = requests[0].settings
        if settings.profile is QualityProfile.EXACT:
            raise InvalidRequest("profile", "exact shares nothing, so there is nothing to measure.")
        probes = list(find_probes(requests))
        if not probes:
            raise InvalidRequest("values", "A calibration needs a parameter with two values.")
        by_kind: dict[str, list[Probe]] = {}
        kinds = {slot.name: slot.kind for slot in requests[0].slots}
        for probe in probes:
            (name,) = probe.names
            by_kind.setdefault(kinds[name], []).append(probe)
        alone = [self._latest_fork(kind, each) for kind, each in by_kind.items()]
        sharing = Sharing(
            forks={kind: fork for each in alone for kind, fork in each.forks.items()},
            stems={kind: stem for each in alone for kind, stem in each.stems.items()},
        )
        joint = together(probes)
        sharing = self._fit(joint, sharing)
        measured = calibrate(
            settings,
            [leaf.result.seconds for leaf in self._exact.values()],
            weights_fingerprint=self._runner.model.fingerprint,
            device_kind=self._device_kind,
            solver=self._runner.model.runner.solver,
        )
        return replace(
            measured,
            fork_steps=MappingProxyType(dict(sharing.forks)),
            stems=MappingProxyType(dict(sharing.stems)),
            step_cache=self._find_step_cache(joint, sharing),
            probe_units=self.work_units - units_before,
        )

    def _latest_fork(self, kind: str, probes: Sequence[Probe]) -> Sharing:
        """The stem with the latest fork that all probes of a kind keep, by bisection.

        A stem must keep a later fork than the best one before it, which one render shows.
        """
        num_steps = probes[0].requests[0].settings.num_inference_steps
        default = self._runner.config.stem_conditioning
        best = Sharing(forks={kind: 0}, stems={kind: default})
        for stem in (default, *(each for each in StemConditioning if each is not default)):
            kept, broken = best.forks[kind], num_steps
            step = (kept + broken) // 2 if stem is default else kept + 1
            while broken - kept > 1:
                sharing = Sharing(forks={kind: step}, stems={kind: stem})
                if all(self._is_kept(probe, sharing) for probe in probes):
                    kept, best = step, sharing
                else:
                    broken = step
                step = (kept + broken) // 2
        return best

    def _fit(self, joint: Probe, sharing: Sharing) -> Sharing:
        """The sharing, with forks a quarter earlier as long as all together break the promise."""
        while any(sharing.forks.values()) and not self._is_kept(joint, sharing):
            forks = {kind: fork * 3 // 4 for kind, fork in sharing.forks.items()}
            sharing = replace(sharing, forks=forks)
        return sharing

    def _find_step_cache(self, joint: Probe, sharing: Sharing) -> StepCachePolicy | None:
        self._is_kept(joint, sharing)
        without = self._forwards
        profile = joint.requests[0].settings.profile
        for policy in STEP_CACHE_CANDIDATES[profile]:
            is_kept = self._is_kept(joint, replace(sharing, step_cache=policy))
            if is_kept and self._forwards < without:
                return policy
        return None

    def _is_kept(self, probe: Probe, sharing: Sharing) -> bool:
        """Whether each variant keeps the promise, its control's own closeness included."""
        config = self._runner.config
        manner = Manner(
            stems=Stems(default=config.stem_conditioning, by_kind=sharing.stems),
            step_cache=sharing.step_cache,
        )
        forked = [_forked(request, probe, sharing.forks) for request in probe.requests]
        leaves = self._render(forked, manner)
        exact = [self._exact_leaf(request, manner) for request in probe.requests]
        promise = PROMISES[probe.requests[0].settings.profile]
        control, *variants = zip(leaves, exact, strict=True)
        return all(
            promise.is_kept(distance)
            for variant in variants
            for distance in compare([variant, control])
        )

    def _exact_leaf(self, request: GenerationRequest, manner: Manner) -> Leaf:
        if request.prompt not in self._exact:
            (self._exact[request.prompt],) = self._render([exactly(request)], manner)
        return self._exact[request.prompt]

    def _render(self, requests: Sequence[GenerationRequest], manner: Manner) -> list[Leaf]:
        """The leaves of one run, in the order of the requests; a failure ends the calibration."""
        watch = Watch(on_progress=None, should_cancel=None)
        run = self._runner.start(requests, watch, manner=manner)
        leaves: dict[str, Leaf] = {}
        for item in run:
            if isinstance(item, GenerationFailure):
                raise EngineError(f"A probe render failed: {item.message}")
            leaves |= {request.request_id: item for request in item.requests}
        self.work_units += run.work_units
        self._forwards = run.forwards_computed
        return [leaves[request.request_id] for request in requests]


def find_probes(requests: Sequence[GenerationRequest]) -> Iterator[Probe]:
    """For each parameter that varies, the first request and variants with a few other values."""
    control = requests[0]
    own = control.slot_values()
    for name in own:
        found = dict.fromkeys(
            slot.value for each in requests for slot in each.slots if slot.name == name
        )
        others = [value for value in found if value not in own[name].split("\x1f")]
        if others:
            variants = [with_values(control, {name: value}) for value in others[:MAX_VALUES]]
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


def _numbered(requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
    return [
        replace(
            request,
            request_id=str(place),
            slots=tuple(replace(slot, fork_step=None) for slot in request.slots),
        )
        for place, request in enumerate(requests)
    ]


def _forked(
    request: GenerationRequest, probe: Probe, forks: Mapping[str, int]
) -> GenerationRequest:
    steps = {slot.name: forks[slot.kind] for slot in request.slots if slot.name in probe.names}
    return with_fork_steps(request, steps)
