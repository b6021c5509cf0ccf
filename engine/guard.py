"""The quality guard: checks sampled variants by other renders of them, and narrows what failed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.calibration import Calibration
from engine.comparing import charged, compare, exactly, record, unshared
from engine.edge_runner import LoadedModel
from engine.guarded import (
    GuardCheck,
    guard_checks,
    is_approximate,
    latest_forks,
    screen_checks,
    sibling_checks,
    values_of,
)
from engine.leaves import Leaf, Manner, Outcome
from engine.narrowing import FamilyRecord
from engine.plan import affinity_key
from engine.profiles import COUPLINGS, PROMISES
from engine.stems import Stems
from engine.terms import known_step_cache
from engine.tree_runner import TreeRun, TreeRunner
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    StepCachePolicy,
)
from engine.watching import Watch

_MAX_FAMILIES = 256


class GuardedRunner:
    """Renders families, and checks what profiles other than `exact` promise.

    Sampled variants come first and are rendered again, exactly or for a screening without sharing;
    nothing of their group is handed out before they were compared. Where an exact check fails, the
    group is rendered again with earlier forks and without a step cache. Where a screening fails,
    its siblings with the same value are screened too: a single failure is delivered in its own
    way, a second one of a parameter narrows its fork. Later groups of the family begin so.
    """

    def __init__(self, trees: TreeRunner) -> None:
        self.trees = trees
        self._families: OrderedDict[str, FamilyRecord] = OrderedDict()

    @property
    def model(self) -> LoadedModel:
        return self.trees.model

    def run(
        self,
        requests: Sequence[GenerationRequest],
        watch: Watch,
        *,
        calibration: Calibration | None = None,
    ) -> Iterator[Outcome]:
        """Yield a result or failure for each request of one family, as their leaves finish.

        All slots carry fork steps. `calibration` must fit the settings and the weights.
        """
        key = affinity_key(requests[0])
        family = self._families.get(key)
        if family is None or family.calibration != calibration:
            family = FamilyRecord(calibration=calibration)
        self._families[key] = family
        self._families.move_to_end(key)
        if len(self._families) > _MAX_FAMILIES:
            self._families.popitem(last=False)
        group = _GuardedGroup(runner=self.trees, requests=requests, watch=watch, family=family)
        yield from group.outcomes()


@dataclass(kw_only=True)
class _GuardedGroup:
    """One group on its way through the guard.

    `held` are leaves that wait for the verdict; `exact` and `own` the exact and the unshared
    renders by prompt, `records` the first comparison of each prompt; `siblings` are checks that
    failures led to, `failed` the ids that failed a screening; `spent_units` is what runs took that
    were given up.
    """

    runner: TreeRunner
    requests: Sequence[GenerationRequest]
    watch: Watch
    family: FamilyRecord
    run: TreeRun = field(init=False)
    leaves: Iterator[Leaf | GenerationFailure] = field(init=False)
    held: list[Leaf] = field(default_factory=list)
    exact: dict[str, Leaf] = field(default_factory=dict)
    own: dict[str, Leaf] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    siblings: dict[GuardCheck, None] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    spent_units: float = 0.0

    def outcomes(self) -> Iterator[Outcome]:
        self._begin()
        while checks := self._checks():
            yield from self._collect(checks)
            if self._checks() != checks:
                continue
            yield from self._render_again(checks)
            if self._checks() != checks:
                continue
            broken = [check for check in checks if not self._is_kept(check)]
            if not self._mend(broken):
                screened = [check for check in checks if not check.is_exact]
                self.family.seen.update(values_of(screened, self.requests))
                break
        for leaf in self.held:
            yield from self._hand_out(leaf)
        self.held.clear()
        for item in self.leaves:
            if isinstance(item, GenerationFailure):
                yield item
            else:
                yield from self._hand_out(item)

    @property
    def _step_cache(self) -> StepCachePolicy | None:
        narrowing, policy = self.family.narrowing, self.runner.config.step_cache
        if narrowing is not None and not narrowing.skips_steps:
            return None
        if policy is None:
            settings = self.requests[0].settings
            policy = known_step_cache(settings, calibration=self.family.calibration)
        return policy if policy is not None and policy.skips_steps else None

    @property
    def _manner(self) -> Manner:
        calibration = self.family.calibration
        by_kind = calibration.stems if calibration is not None else {}
        return Manner(
            stems=Stems(default=self.runner.config.stem_conditioning, by_kind=by_kind),
            step_cache=self._step_cache,
            coupling=COUPLINGS.get(self.requests[0].settings.profile),
        )

    def _begin(self) -> None:
        if self.family.narrowing is not None:
            self.requests = self.family.narrowing.apply(self.requests)
        first = [name for check in self._checks() for name in check.request_ids]
        self.run = self.runner.start(self.requests, self.watch, manner=self._manner, first=first)
        self.leaves = iter(self.run)

    def _checks(self) -> tuple[GuardCheck, ...]:
        """The checks among the requests that have not failed, the exact ones first."""
        left = [request for request in self.requests if request.request_id not in self.gone]
        if not left:
            return ()
        calibration, every = self.family.calibration, self.runner.config.guard_every
        exact = guard_checks(
            left,
            is_calibrated=calibration is not None and calibration.has_forks,
            skips_steps=self._step_cache is not None,
            every=every,
        )
        screened = screen_checks(left, seen=self.family.seen, every=every)
        forks = latest_forks(left)
        siblings = [
            check
            for check in self.siblings
            if self.gone.isdisjoint(check.request_ids)
            and any(forks[name] for name in check.parameters)
        ]
        return tuple(dict.fromkeys((*exact, *screened, *siblings)))

    def _collect(self, checks: Sequence[GuardCheck]) -> Iterator[GenerationFailure]:
        """Run on until the renders of these checks are held; a failure ends it as well."""
        wanted = {name for check in checks for name in check.request_ids}
        while wanted - {r.request_id for leaf in self.held for r in leaf.requests}:
            item = next(self.leaves, None)
            if item is None:
                self.gone |= wanted - {r.request_id for leaf in self.held for r in leaf.requests}
                return
            if isinstance(item, GenerationFailure):
                self.gone.add(item.request_id)
                yield item
                return
            self.held.append(item)

    def _render_again(self, checks: Sequence[GuardCheck]) -> Iterator[GenerationFailure]:
        """Render what checks compare with: each exactly, or the screened ones together."""
        by_id = {request.request_id: request for request in self.requests}
        wanted: dict[bool, dict[str, GenerationRequest]] = {True: {}, False: {}}
        for check in checks:
            for request in (by_id[name] for name in check.request_ids):
                wanted[check.is_exact].setdefault(request.prompt, request)
        # What it compares with follows nobody.
        manner = replace(self._manner, coupling=None)
        exact = [[exactly(each)] for key, each in wanted[True].items() if key not in self.exact]
        own = [unshared(each) for key, each in wanted[False].items() if key not in self.own]
        for requests, kept in (*((each, self.exact) for each in exact), (own, self.own)):
            if not requests:
                continue
            for item in self.runner.start(requests, self.watch, manner=manner):
                if isinstance(item, GenerationFailure):
                    self.gone.add(item.request_id)
                    yield item
                    return
                kept[item.requests[0].prompt] = item

    def _is_kept(self, check: GuardCheck) -> bool:
        """Compare the renders of a check with the others of them, and note what came of it."""
        by_id = {r.request_id: leaf for leaf in self.held for r in leaf.requests}
        others = self.exact if check.is_exact else self.own
        pairs = [
            (leaf, others[leaf.requests[0].prompt])
            for leaf in (by_id[name] for name in check.request_ids)
        ]
        distances = compare(pairs)
        for (leaf, _), distance in zip(pairs, distances, strict=True):
            self.records.setdefault(leaf.requests[0].prompt, record(check, distance))
        promise = PROMISES[self.requests[0].settings.profile]
        return all(promise.is_kept(distance) for distance in distances)

    def _mend(self, broken: Sequence[GuardCheck]) -> bool:
        """Narrow the family or check on; False where nothing is left to do before handing out."""
        exact_ones = [check for check in broken if check.is_exact]
        if exact_ones:
            names = [name for check in exact_ones for name in check.parameters]
            self._begin_anew(names, skips_steps=False)
            return True
        new = [check for check in broken if check.request_id not in self.failed]
        for check in new:
            self.failed.add(check.request_id)
            self.family.failures.update(check.parameters)
        suspects = {name for check in broken for name in check.parameters} & self.family.suspects
        if suspects:
            self._begin_anew(suspects, skips_steps=True)
            return True
        known = self._checks()
        left = [request for request in self.requests if request.request_id not in self.gone]
        for check in new:
            self.siblings |= dict.fromkeys(sibling_checks(check, left))
        return self._checks() != known

    def _begin_anew(self, names: Iterable[str], *, skips_steps: bool) -> None:
        """Give the run up for one with earlier forks of these parameters."""
        self.leaves.close()  # type: ignore[attr-defined]  # a generator
        self.spent_units += self.run.work_units
        self.given_up |= {r.request_id for leaf in self.held for r in leaf.requests}
        self.held.clear()
        self.failed.clear()
        if not skips_steps:
            self.spent_units += sum(leaf.result.work_units for leaf in self.own.values())
            self.own.clear()
        self.family.narrow(self.requests, names, skips_steps=skips_steps)
        self._begin()

    def _hand_out(self, leaf: Leaf) -> Iterator[Outcome]:
        """A leaf's results, with all that the guard took.

        An exactly checked one has the exact frames, one that failed its screening those of its
        own way.
        """
        result, prompt = leaf.result, leaf.requests[0].prompt
        exact, own = self.exact.get(prompt), self.own.get(prompt)
        others = [other.result for other in (exact, own) if other is not None]
        if others:
            shown = result
            if exact is not None:
                shown = exact.result
            elif own is not None and self._has_failed(leaf):
                shown = own.result
            result = charged(leaf.result, others, shown=shown, spent_units=self.spent_units)
            self.spent_units = 0.0
        is_narrowed = self.family.narrowing is not None
        skips_steps = self._step_cache is not None
        if others or is_narrowed or is_approximate(self.requests, skips_steps=skips_steps):
            guard = self._facts(leaf)
            result = replace(result, provenance=result.provenance | {"guard": guard})
        yield from replace(leaf, result=result).outcomes(self.watch)

    def _has_failed(self, leaf: Leaf) -> bool:
        return not self.failed.isdisjoint(request.request_id for request in leaf.requests)

    def _facts(self, leaf: Leaf) -> dict[str, Any]:
        narrowing = self.family.narrowing
        decision = "replaced" if self._has_failed(leaf) else "kept"
        if narrowing is not None and decision == "kept":
            is_second = any(r.request_id in self.given_up for r in leaf.requests)
            decision = "re-rendered" if is_second else "narrowed"
        facts: dict[str, Any] = {"decision": decision}
        if narrowing is not None:
            facts["latest_forks"] = dict(narrowing.latest_forks)
        prompt = leaf.requests[0].prompt
        seen = {"sampled": prompt in self.exact, "screened": prompt in self.own}
        return seen | self.records.get(prompt, {}) | facts
