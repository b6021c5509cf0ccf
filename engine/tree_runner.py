"""Runs the denoising tree of a family: depth first, edges batched, each leaf handed out alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from engine.branches import Branch, full_forwards, grow
from engine.caching.shared import SharedCache
from engine.config import EngineConfig
from engine.edge_runner import EdgeRunner, LoadedModel
from engine.errors import OutOfMemory
from engine.pipelines.base import memory_errors
from engine.plan import affinity_key
from engine.stems import conditioning_texts
from engine.tree import build_tree
from engine.types import (
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    QualityProfile,
    RenderSettings,
    StageSeconds,
)
from engine.watching import Watch

Outcome = GenerationResult | GenerationFailure


class TreeRunner:
    """Renders families with one model.

    Memory is bounded by `batch_size` states for each level of the tree: siblings that do not fit
    a batch wait until the subtrees of those before them are done.
    """

    def __init__(self, model: LoadedModel, *, config: EngineConfig, cache: SharedCache) -> None:
        self.model = model
        self._config = config
        self._cache = cache
        # Batch sizes that were too large for the device's memory were halved.
        self._batch_sizes: dict[RenderSettings, int] = {}

    def run(self, requests: Sequence[GenerationRequest], watch: Watch) -> Iterator[Outcome]:
        """Yield a result or failure for each request of one family, as their leaves finish.

        All slots carry fork steps. `exact` runs every leaf alone, with nothing spared.
        """
        by_id = {request.request_id: request for request in requests}
        tree = build_tree(requests)
        stem = self._config.stem_conditioning
        texts = [conditioning_texts(edge, by_id, stem=stem) for edge in tree.edges]
        edges = EdgeRunner(
            model=self.model,
            cache=self._cache,
            key=affinity_key(requests[0]),
            settings=requests[0].settings,
            step_cache=self._config.step_cache,
        )
        roots = [branch for branch in grow(tree, by_id, texts) if branch.parent is None]
        yield from self._advance(roots, edges, watch)

    def _advance(
        self, branches: Sequence[Branch], edges: EdgeRunner, watch: Watch
    ) -> Iterator[Outcome]:
        """Run branches whose parents have run, and all that grows from them."""

        def span(branch: Branch) -> tuple[int, int]:
            return branch.edge.start, branch.edge.stop

        # Cousins run together as well as siblings: what counts is that their steps are the same.
        for _, group in groupby(sorted(branches, key=span), key=span):
            waiting = list(group)
            while waiting:
                size = self._batch_size(edges.settings)
                batch, waiting = waiting[:size], waiting[size:]
                self._run_batch(batch, edges, watch)
                for branch in batch:
                    branch.release_parent()
                yield from watch.take_failures()
                leaves = [each for each in batch if each.is_leaf and each.state is not None]
                edges.decode_together(leaves)
                for branch in leaves:
                    yield from self._finish(branch, edges, watch)
                yield from self._advance(
                    [child for branch in batch if branch.state for child in branch.children],
                    edges,
                    watch,
                )

    def _batch_size(self, settings: RenderSettings) -> int:
        if settings.profile is QualityProfile.EXACT:
            return 1
        return self._batch_sizes.get(settings, self._config.batch_size)

    def _run_batch(self, batch: Sequence[Branch], edges: EdgeRunner, watch: Watch) -> None:
        """Bring the branches to their ends; one that fails leaves the others untouched."""
        start = batch[0].edge.start
        wanted = [branch for branch in batch if watch.open_ones(branch.requests, step=start)]
        missing = [branch for branch in wanted if not edges.recall(branch)]
        if not missing:
            return
        try:
            with memory_errors(self.model.runner.placement.device):
                edges.denoise(missing, watch)
        except Exception as error:
            if len(missing) == 1:
                watch.fail(missing[0].requests, error)
                return
            # One of them may be the cause, so the next tries are smaller, down to each alone.
            size = 1
            if isinstance(error, OutOfMemory):
                size = self._batch_sizes[edges.settings] = len(missing) // 2
                self._cache.clear()
            for at in range(0, len(missing), size):
                self._run_batch(missing[at : at + size], edges, watch)

    def _finish(self, leaf: Branch, edges: EdgeRunner, watch: Watch) -> Iterator[Outcome]:
        """Decode a leaf for its first request that is still wanted; the others get copies."""
        requests = watch.open_ones(leaf.requests, step=leaf.edge.stop)
        yield from watch.take_failures()
        if not requests:
            return
        try:
            with memory_errors(self.model.runner.placement.device):
                result = edges.decode(leaf, requests[0])
        except Exception as error:
            watch.fail(requests, error)
            yield from watch.take_failures()
            return
        finally:
            leaf.state = None
        for request in requests:
            watch.end(request)
            yield result if request is requests[0] else _reuse(result, request)


def _reuse(result: GenerationResult, request: GenerationRequest) -> GenerationResult:
    """The same frames for another request that asks for the same pixels."""
    settings = request.settings
    spared = {"computed": 0.0, "saved": {"duplicate": full_forwards(settings)}}
    return replace(
        result,
        request_id=request.request_id,
        fps=settings.fps,
        seconds=StageSeconds(),
        forwards_computed=0.0,
        work_units=0.0,
        provenance=result.provenance | {"reused_from": result.request_id, "forwards": spared},
    )
