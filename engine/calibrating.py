"""Finds how much families may share and skip and still keep their profile's promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from engine.calibration import Calibration
from engine.comparing import compare, exactly, summary
from engine.errors import EngineError, InvalidRequest
from engine.guarded import control_of
from engine.leaves import Leaf, Manner
from engine.plan import calibrate
from engine.probing import Probe, make_probes
from engine.profiles import COUPLINGS, PROMISES, STEP_CACHE_CANDIDATES, Distance
from engine.skipping import edge_forwards
from engine.stems import Stems
from engine.tree_runner import TreeRunner
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    QualityProfile,
    RenderSettings,
    StemConditioning,
    StepCachePolicy,
)
from engine.watching import Watch
from engine.worth import least_worthwhile_fork


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """What is tried: fork steps and stems by parameter kind, and a step cache."""

    forks: Mapping[str, int]
    stems: Mapping[str, StemConditioning] = field(default_factory=lambda: MappingProxyType({}))
    step_cache: StepCachePolicy | None = None


class Calibrator:
    """Measures families with one model, one profile after the other by the same exact renders.

    `work_units` are what its probe renders took so far.
    """

    def __init__(self, runner: TreeRunner, *, device_kind: str) -> None:
        self._runner = runner
        self._device_kind = device_kind
        self._exact: dict[tuple[int, str], Leaf] = {}
        self.work_units = 0.0

    def calibrate(self, requests: Sequence[GenerationRequest]) -> Calibration:
        """Calibrate with the prompts, seeds and values that the requests show.

        What is kept holds for every probed variant of every prompt and seed: the most sparing step
        cache with nothing shared; under it for each parameter kind alone the latest fork and its
        best stem; then all parameters at once, with earlier forks where they need it.
        InvalidRequest where nothing varies or the profile shares nothing.
        """
        units_before = self.work_units
        settings = requests[0].settings
        if settings.profile is QualityProfile.EXACT:
            raise InvalidRequest("profile", "exact shares nothing, so there is nothing to measure.")
        probes = make_probes(requests)
        if not probes.whole:
            raise InvalidRequest("values", "A calibration needs a parameter with two values.")
        policy, distances = self._find_step_cache(probes.whole, dict.fromkeys(probes.by_kind, 0))
        alone = [self._latest_fork(kind, each, policy) for kind, each in probes.by_kind.items()]
        sharing = Sharing(
            forks={kind: fork for each in alone for kind, fork in each.forks.items()},
            stems={kind: stem for each in alone for kind, stem in each.stems.items()},
            step_cache=policy,
        )
        sharing, shared_distances = self._fit(probes.whole, sharing)
        if not self._exact:
            # Nothing was worth a try; its times are those of exact renders all the same.
            distances = self._kept(probes.whole, sharing)
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
            step_cache=policy,
            probe_units=self.work_units - units_before,
            num_prompts=probes.num_prompts,
            num_seeds=probes.num_seeds,
            num_variants=probes.num_variants,
            closeness=MappingProxyType(summary(shared_distances or distances)),
        )

    def _find_step_cache(
        self, whole: list[Probe], no_forks: Mapping[str, int]
    ) -> tuple[StepCachePolicy | None, Sequence[Distance]]:
        """The first candidate that saves forwards and keeps the promise, and its distances."""
        settings = whole[0].requests[0].settings
        for policy in STEP_CACHE_CANDIDATES[settings.profile]:
            if _forwards(settings, policy) < _forwards(settings, None):
                distances = self._kept(whole, Sharing(forks=no_forks, step_cache=policy))
                if distances:
                    return policy, distances
        return None, ()

    def _latest_fork(
        self, kind: str, probes: list[Probe], policy: StepCachePolicy | None
    ) -> Sharing:
        """The stem with the latest fork that all probes of a kind keep, of those that pay.

        Strides double up to the first broken fork and halve from there: most forks are early. A
        stem must keep a later fork than the best one before it, which one render shows.
        """
        settings = probes[0].requests[0].settings
        default = self._runner.config.stem_conditioning
        best = Sharing(forks={kind: 0}, stems={kind: default}, step_cache=policy)
        least = least_worthwhile_fork(settings, policy)
        if least is None:
            return best
        for stem in (default, *(each for each in StemConditioning if each is not default)):
            kept, broken, stride = best.forks[kind], settings.num_inference_steps, 1
            while broken - max(kept, least - 1) > 1:
                step = max(least, min(kept + stride, (kept + broken) // 2))
                sharing = replace(best, forks={kind: step}, stems={kind: stem})
                if self._kept(probes, sharing):
                    kept, best, stride = step, sharing, stride * 2
                else:
                    broken = step
        return best

    def _fit(self, whole: list[Probe], sharing: Sharing) -> tuple[Sharing, Sequence[Distance]]:
        """The sharing, with forks a quarter earlier as long as all together break the promise.

        One that would not pay any more is dropped. The distances are those of what is kept; none
        where that shares nothing.
        """
        settings = whole[0].requests[0].settings
        least = least_worthwhile_fork(settings, sharing.step_cache) or 0
        while any(sharing.forks.values()):
            if distances := self._kept(whole, sharing):
                return sharing, distances
            earlier = {kind: fork * 3 // 4 for kind, fork in sharing.forks.items()}
            forks = {kind: fork if fork >= least else 0 for kind, fork in earlier.items()}
            sharing = replace(sharing, forks=forks)
        return sharing, ()

    def _kept(self, probes: list[Probe], sharing: Sharing) -> Sequence[Distance]:
        """Distances of all variants; none as soon as one breaks the promise.

        The probe that broke it comes first the next time: it most likely does so again.
        """
        distances: list[Distance] = []
        for place, probe in enumerate(probes):
            found = self._distances(probe, sharing)
            if not found:
                probes.insert(0, probes.pop(place))
                return ()
            distances += found
        return distances

    def _distances(self, probe: Probe, sharing: Sharing) -> Sequence[Distance]:
        """Distances of a probe's variants; none where one, or its control, breaks the promise."""
        manner = Manner(
            stems=Stems(default=self._runner.config.stem_conditioning, by_kind=dict(sharing.stems)),
            step_cache=sharing.step_cache,
            coupling=COUPLINGS.get(probe.requests[0].settings.profile),
        )
        leaves = self._render(probe.forked(sharing.forks), manner)
        exact = [self._exact_leaf(request, manner) for request in probe.requests]
        promise = PROMISES[probe.requests[0].settings.profile]
        own_control = probe.requests.index(control_of(probe.requests))
        variants = list(zip(leaves, exact, strict=True))
        control = variants.pop(own_control)
        distances: list[Distance] = []
        for variant in variants:
            compared = compare([variant, control])
            if not all(promise.is_kept(distance) for distance in compared):
                return ()
            distances.append(compared[0])
        return distances

    def _exact_leaf(self, request: GenerationRequest, manner: Manner) -> Leaf:
        key = request.seed, request.prompt
        if key not in self._exact:
            (self._exact[key],) = self._render([exactly(request)], manner)
        return self._exact[key]

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
        return [leaves[request.request_id] for request in requests]


def _forwards(settings: RenderSettings, policy: StepCachePolicy | None) -> int:
    return edge_forwards(settings, policy, 0, settings.num_inference_steps)
