"""The quality guard: checks sampled variants by their exact renders, and narrows what failed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.calibration import Calibration
from engine.comparing import compare, exactly, record
from engine.edge_runner import LoadedModel
from engine.guarded import GuardCheck, guard_checks, is_approximate
from engine.plan import affinity_key
from engine.profiles import PROMISES
from engine.stems import Stems
from engine.terms import known_step_cache
from engine.tree_runner import Leaf, Manner, Outcome, TreeRun, TreeRunner
from engine.types import GenerationFailure, GenerationRequest, StageSeconds
from engine.watching import Watch

_MAX_NARROWINGS = 256


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """What a failed check left of a family's sharing: the latest forks by slot, no step cache.

    Where nothing is left to share, the renders are the exact ones. It holds until another
    calibration says better.
    """

    calibration: Calibration | None
    latest_forks: Mapping[str, int]

    def apply(self, requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
        if not any(self.latest_forks.values()):
            return [exactly(request) for request in requests]
        return [
            replace(
                request,
                slots=tuple(
                    replace(
                        slot,
                        fork_step=min(
                            slot.fork_step or 0,
                            self.latest_forks.get(slot.name, slot.fork_step or 0),
                        ),
                    )
                    for slot in request.slots
                ),
            )
            for request in requests
        ]


class GuardedRunner:
    """Renders families, and checks what profiles other than `exact` promise.

    Sampled variants come first and are rendered exactly as well; nothing of their group is handed
    out before they were compared. Where the promise is broken, the group is rendered again with
    earlier forks and without a step cache, until it is kept; later groups of the family begin so.
    """

    def __init__(self, trees: TreeRunner) -> None:
        self.trees = trees
        self._narrowings: OrderedDict[str, Narrowing] = OrderedDict()

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
        narrowing = self._narrowings.get(key)
        if narrowing is not None and narrowing.calibration != calibration:
            narrowing = None
        group = _GuardedGroup(
            runner=self.trees,
            requests=requests,
            watch=watch,
            calibration=calibration,
            narrowing=narrowing,
        )
        try:
            yield from group.outcomes()
        finally:
            if group.narrowing is not None:
                self._narrowings[key] = group.narrowing
                self._narrowings.move_to_end(key)
            if len(self._narrowings) > _MAX_NARROWINGS:
                self._narrowings.popitem(last=False)


@dataclass(kw_only=True)
class _GuardedGroup:
    """One group on its way through the guard.

    `held` are leaves that wait for the verdict, `exact` the exact renders by prompt, `records` the
    first comparison of each prompt, `spent_units` what runs took that were given up.
    """

    runner: TreeRunner
    requests: Sequence[GenerationRequest]
    watch: Watch
    calibration: Calibration | None
    narrowing: Narrowing | None
    run: TreeRun = field(init=False)
    leaves: Iterator[Leaf | GenerationFailure] = field(init=False)
    held: list[Leaf] = field(default_factory=list)
    exact: dict[str, Leaf] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    spent_units: float = 0.0

    def outcomes(self) -> Iterator[Outcome]:
        self._begin()
        while checks := self._checks():
            yield from self._collect(checks)
            if self._checks() != checks:
                continue
            yield from self._render_exactly(checks)
            if self._checks() != checks:
                continue
            broken = [check for check in checks if not self._is_kept(check)]
            if not broken:
                break
            self._narrow(broken)
            self._begin()
        for leaf in self.held:
            yield from self._hand_out(leaf)
        self.held.clear()
        for item in self.leaves:
            if isinstance(item, GenerationFailure):
                yield item
            else:
                yield from self._hand_out(item)

    @property
    def _manner(self) -> Manner:
        config, calibration = self.runner.config, self.calibration
        policy = config.step_cache
        if policy is None:
            policy = known_step_cache(self.requests[0].settings, calibration=calibration)
        if self.narrowing is not None or (policy is not None and not policy.skips_steps):
            policy = None
        by_kind = calibration.stems if calibration is not None else {}
        return Manner(
            stems=Stems(default=config.stem_conditioning, by_kind=by_kind),
            step_cache=policy,
        )

    def _begin(self) -> None:
        if self.narrowing is not None:
            self.requests = self.narrowing.apply(self.requests)
        first = [name for check in self._checks() for name in check.request_ids]
        self.run = self.runner.start(self.requests, self.watch, manner=self._manner, first=first)
        self.leaves = iter(self.run)

    def _checks(self) -> tuple[GuardCheck, ...]:
        """The checks among the requests that have not failed."""
        left = [request for request in self.requests if request.request_id not in self.gone]
        if not left:
            return ()
        return guard_checks(
            left,
            is_calibrated=self.calibration is not None and self.calibration.has_forks,
            skips_steps=self._manner.step_cache is not None,
            every=self.runner.config.guard_every,
        )

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

    def _render_exactly(self, checks: Sequence[GuardCheck]) -> Iterator[GenerationFailure]:
        by_id = {request.request_id: request for request in self.requests}
        for request in [by_id[name] for check in checks for name in check.request_ids]:
            if request.prompt in self.exact:
                continue
            for item in self.runner.start([exactly(request)], self.watch, manner=self._manner):
                if isinstance(item, GenerationFailure):
                    self.gone.add(item.request_id)
                    yield item
                    return
                self.exact[request.prompt] = item

    def _is_kept(self, check: GuardCheck) -> bool:
        """Compare the renders of a check with their exact ones, and note what came of it."""
        by_id = {r.request_id: leaf for leaf in self.held for r in leaf.requests}
        pairs = [
            (leaf, self.exact[leaf.requests[0].prompt])
            for leaf in (by_id[name] for name in check.request_ids)
        ]
        distances = compare(pairs)
        for (leaf, _), distance in zip(pairs, distances, strict=True):
            self.records.setdefault(leaf.requests[0].prompt, record(check, distance))
        promise = PROMISES[self.requests[0].settings.profile]
        return all(promise.is_kept(distance) for distance in distances)

    def _narrow(self, broken: Sequence[GuardCheck]) -> None:
        """Give the run up, and halve the forks of what the broken checks were about."""
        self.leaves.close()  # type: ignore[attr-defined]  # a generator
        self.spent_units += self.run.work_units
        self.given_up |= {r.request_id for leaf in self.held for r in leaf.requests}
        self.held.clear()
        forks: dict[str, int] = {}
        for slot in (slot for request in self.requests for slot in request.slots):
            forks[slot.name] = max(slot.fork_step or 0, forks.get(slot.name, 0))
        names = {name for check in broken for name in check.parameters if forks[name]}
        # Where those do not share any step, it can only be the others.
        halved = {name: step // 2 for name, step in forks.items() if name in names or not names}
        self.narrowing = Narrowing(calibration=self.calibration, latest_forks=forks | halved)

    def _hand_out(self, leaf: Leaf) -> Iterator[Outcome]:
        """A leaf's results; of a guarded one the exact frames, with all that the guard took."""
        result = leaf.result
        exact = self.exact.get(leaf.requests[0].prompt)
        if exact is not None:
            guard_units = exact.result.work_units + self.spent_units
            self.spent_units = 0.0
            result = replace(
                exact.result,
                request_id=result.request_id,
                seconds=_sum(result.seconds, exact.result.seconds),
                forwards_computed=result.forwards_computed + exact.result.forwards_computed,
                work_units=result.work_units + guard_units,
                guard_units=guard_units,
            )
        skips_steps = self._manner.step_cache is not None
        is_narrowed = self.narrowing is not None
        if exact or is_narrowed or is_approximate(self.requests, skips_steps=skips_steps):
            guard = self._facts(leaf)
            result = replace(result, provenance=result.provenance | {"guard": guard})
        yield from replace(leaf, result=result).outcomes(self.watch)

    def _facts(self, leaf: Leaf) -> dict[str, Any]:
        decision = "kept"
        if self.narrowing is not None:
            is_second = any(r.request_id in self.given_up for r in leaf.requests)
            decision = "re-rendered" if is_second else "narrowed"
        facts: dict[str, Any] = {"decision": decision}
        if self.narrowing is not None:
            facts["latest_forks"] = dict(self.narrowing.latest_forks)
        record = self.records.get(leaf.requests[0].prompt)
        return {"sampled": record is not None} | (record or {}) | facts


def _sum(left: StageSeconds, right: StageSeconds) -> StageSeconds:
    return StageSeconds(
        text=left.text + right.text,
        denoise=left.denoise + right.denoise,
        decode=left.decode + right.decode,
    )
