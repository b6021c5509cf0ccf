"""Runs the denoising tree of a family: depth first, edges batched, each leaf handed out alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from engine.branches import Branch, grow
from engine.caching.shared import SharedCache
from engine.config import EngineConfig
from engine.coupling import FamilyControl
from engine.drafting import as_draft, continue_draft
from engine.edge_runner import EdgeRunner, LoadedModel
from engine.errors import GenerationSuspended, OutOfMemory
from engine.guarded import control_of
from engine.leaves import Leaf, Manner
from engine.pipelines.base import memory_errors
from engine.plan import affinity_key
from engine.registry import get_model
from engine.stems import conditioning_texts
from engine.suspending import OpenEdge
from engine.tree import build_tree
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    QualityProfile,
    RenderSettings,
)
from engine.units import decode_units, forward_units
from engine.watching import Watch


class TreeRunner:
    """Renders families with one model.

    Memory is bounded by `batch_size` states for each level of the tree: siblings that do not fit
    a batch wait until the subtrees of those before them are done.
    """

    def __init__(self, model: LoadedModel, *, config: EngineConfig, cache: SharedCache) -> None:
        self.model = model
        self.config = config
        self.cache = cache
        # Batch sizes that were too large for the device's memory were halved.
        self._batch_sizes: dict[RenderSettings, int] = {}

    def start(
        self,
        requests: Sequence[GenerationRequest],
        watch: Watch,
        *,
        manner: Manner,
        first: Collection[str] = (),
    ) -> TreeRun:
        """Begin with the requests of one family, whose slots all carry fork steps.

        Subtrees that hold requests of `first` are run before the others.
        """
        return TreeRun(self, requests, watch, manner=manner, first=first)

    def batch_size(self, settings: RenderSettings) -> int:
        """Rows that go into one forward; `exact` runs every leaf alone."""
        inputs = get_model(settings.model_id).inputs_of(settings.task)
        if settings.profile is QualityProfile.EXACT or not inputs.takes_batches:
            return 1
        return self._batch_sizes.get(settings, self.config.batch_size)

    def halve_batch(self, settings: RenderSettings, size: int) -> int:
        """Half of a size that was too large for the memory; what was kept in it is let go."""
        self._batch_sizes[settings] = size // 2
        self.cache.clear()
        return size // 2


class TreeRun:
    """One family's tree being run; iterating it runs on, and gives leaves and failures.

    Leaves come as they finish. The caller ends their requests (`Leaf.outcomes`), so a run may be
    given up and another begun for the same requests.
    """

    def __init__(
        self,
        runner: TreeRunner,
        requests: Sequence[GenerationRequest],
        watch: Watch,
        *,
        manner: Manner,
        first: Collection[str],
    ) -> None:
        self._runner = runner
        self._watch = watch
        self._first = frozenset(first)
        self._num_decoded = 0
        by_id = {request.request_id: request for request in requests}
        tree = build_tree(requests)
        texts = [conditioning_texts(edge, by_id, stems=manner.stems) for edge in tree.edges]
        self._branches = grow(tree, by_id, texts)
        self._edges = EdgeRunner(
            model=runner.model,
            cache=runner.cache,
            key=affinity_key(requests[0]),
            settings=requests[0].settings,
            loras=requests[0].loras,
            step_cache=manner.step_cache,
            control=_control(requests, manner),
        )
        for branch in self._branches:
            opened = watch.suspension.find(self._edges.keys.pause(branch))
            if opened is not None:
                branch.take_up(opened)
            elif branch.is_leaf:
                continue_draft(branch, self._edges, watch.suspension)
        watch.suspension.note(self)

    def __iter__(self) -> Iterator[Leaf | GenerationFailure]:
        roots = [branch for branch in self._branches if branch.parent is None]
        return self._advance(roots)

    @property
    def forwards_computed(self) -> float:
        """Forwards so far, of edges whose leaves are not finished too."""
        return sum(branch.computed for branch in self._branches)

    @property
    def work_units(self) -> float:
        """Work units so far: forwards and decodes."""
        settings = self._edges.settings
        forwards = sum(branch.priced for branch in self._branches)
        return forwards * forward_units(settings) + self._num_decoded * decode_units(settings)

    def open_edges(self) -> dict[str, OpenEdge]:
        """What a later run can go on from, by key: edges on the way to whom is still waited for.

        Of a shared edge it holds the part that is not paid by renders that ended.
        """
        edges: dict[str, OpenEdge] = {}
        for branch in self._branches:
            opened = branch.opened()
            waiting = {request.prompt for request in self._watch.unended(branch.requests)}
            if opened is not None and waiting:
                part = len(waiting) / branch.edge.num_leaves
                edges[self._edges.keys.pause(branch)] = opened.part(part)
        return edges

    def _advance(self, branches: Sequence[Branch]) -> Iterator[Leaf | GenerationFailure]:
        """Run branches whose parents have run, and all that grows from them.

        GenerationSuspended ends it between two steps where that is asked for.
        """

        def span(branch: Branch) -> tuple[int, int, int]:
            # What was stopped in its midst has a step cache that began where the edge did.
            return branch.start, branch.edge.stop, branch.edge.start

        def leads(branch: Branch) -> bool:
            control = self._edges.control
            return control is not None and control.is_on(branch)

        led_spans = {span(branch) for branch in branches if leads(branch)}

        def place(branch: Branch) -> tuple[bool, tuple[int, int, int], bool, bool]:
            # Who follows the control comes after it.
            is_asked = not self._first.isdisjoint(branch.edge.members)
            return span(branch) not in led_spans, span(branch), not leads(branch), not is_asked

        # Cousins run together as well as siblings: what counts is that their steps are the same.
        for _, group in groupby(sorted(branches, key=place), key=span):
            waiting = list(group)
            while waiting:
                size = self._runner.batch_size(self._edges.settings)
                batch, waiting = waiting[:size], waiting[size:]
                self._stop_if_asked()
                self._run_batch(batch)
                self._stop_if_asked()
                for branch in batch:
                    branch.release_parent()
                yield from self._watch.take_failures()
                leaves = [each for each in batch if each.is_leaf and each.state is not None]
                self._edges.decode_together(leaves)
                for branch in leaves:
                    if branch.frames is None:
                        self._stop_if_asked()
                    yield from self._finish(branch)
                run = [branch for branch in batch if branch.state or not branch.is_needed]
                yield from self._advance([child for branch in run for child in branch.children])

    def _stop_if_asked(self) -> None:
        if self._watch.suspension.is_asked:
            raise GenerationSuspended

    def _run_batch(self, batch: Sequence[Branch]) -> None:
        """Bring the branches to their ends; one that fails leaves the others untouched."""
        edges, watch = self._edges, self._watch
        start = batch[0].start
        wanted = [branch for branch in batch if watch.open_ones(branch.requests, step=start)]
        missing = [branch for branch in wanted if branch.is_needed and not edges.recall(branch)]
        if not missing:
            return
        try:
            with memory_errors(self._runner.model.runner.placement.device):
                edges.denoise(missing, watch)
        except Exception as error:
            if len(missing) == 1:
                watch.fail(missing[0].requests, error)
                return
            # One of them may be the cause, so the next tries are smaller, down to each alone.
            size = 1
            if isinstance(error, OutOfMemory):
                size = self._runner.halve_batch(edges.settings, len(missing))
            for at in range(0, len(missing), size):
                self._stop_if_asked()
                self._run_batch(missing[at : at + size])

    def _finish(self, branch: Branch) -> Iterator[Leaf | GenerationFailure]:
        """Decode a leaf for its first request that is still wanted."""
        watch = self._watch
        requests = watch.open_ones(branch.requests, step=branch.edge.stop)
        yield from watch.take_failures()
        if not requests or branch.state is None:
            return
        try:
            with memory_errors(self._runner.model.runner.placement.device):
                result = self._edges.decode(branch, requests[0])
            self._num_decoded += 1
            result = self._resumed(branch, result)
            if requests[0].settings.draft_step is not None:
                result = as_draft(branch, result, self._edges, watch.suspension)
            latents = self._runner.model.runner.by_token(branch.state.shown, requests[0])
            yield Leaf(requests=requests, result=result, latents=latents)
        except Exception as error:
            watch.fail(requests, error)
            yield from watch.take_failures()
        # Who takes leaves may hold them back for a while, and the run may be suspended then.
        if not watch.unended(requests):
            branch.state = None

    def _resumed(self, leaf: Branch, result: GenerationResult) -> GenerationResult:
        """The result, with where an earlier run left it, or why that was of no use."""
        suspension = self._watch.suspension
        if not suspension.is_resuming:
            return result
        step = max(branch.resumed_at or 0 for branch in leaf.way)
        facts = {"from_step": step} if step else {"from_step": 0, "because": suspension.why_not}
        return replace(result, provenance=result.provenance | {"resumed": facts})


def _control(requests: Sequence[GenerationRequest], manner: Manner) -> FamilyControl | None:
    if manner.coupling is None:
        return None
    return FamilyControl(manner.coupling, request_id=control_of(requests).request_id)
