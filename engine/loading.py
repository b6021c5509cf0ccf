"""The models in memory: loaded on first use, the longest unused let go where room is needed."""

from __future__ import annotations

import gc
import logging
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import torch

from engine.caching.shared import SharedCache
from engine.checkpoint import count_parameters
from engine.config import EngineConfig
from engine.edge_runner import LoadedModel
from engine.guard import GuardedRunner
from engine.memory import find_needs, model_budget, plan_memory
from engine.pipelines.base import ModelRunner, Placement, resolve
from engine.pipelines.placing import memory_there
from engine.registry import get_model, require_weights, weights_fingerprint
from engine.snapshots import read_lock
from engine.tree_runner import TreeRunner

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Entry:
    runner: GuardedRunner
    size_bytes: int


class LoadedModels:
    """Keeps models within a limit in bytes; one that is larger than it is kept alone.

    What is counted is weights, on the device and in host memory.
    """

    def __init__(self, config: EngineConfig, placement: Placement, cache: SharedCache) -> None:
        self._config = config
        self._placement = placement
        self._cache = cache
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self._entries.values())

    def __contains__(self, model_id: str) -> bool:
        return model_id in self._entries

    def get(self, model_id: str) -> GuardedRunner:
        """The model's runner, loaded where it is not; CheckpointError where that is impossible."""
        entry = self._entries.get(model_id)
        if entry is None:
            self._make_room(model_id)
            entry = self._load(model_id)
            self._entries[model_id] = entry
        self._entries.move_to_end(model_id)
        return entry.runner

    def _load(self, model_id: str) -> _Entry:
        spec = get_model(model_id)
        folder = require_weights(model_id, model_dir=self._config.model_dir)
        runner_class: type[ModelRunner] = resolve(spec.runner)
        lock = read_lock(folder)
        model = LoadedModel(
            runner=runner_class.load(spec, folder, self._place(model_id)),
            fingerprint=weights_fingerprint(model_id, model_dir=self._config.model_dir),
            revision=None if lock is None else lock.revision,
        )
        trees = TreeRunner(model, config=self._config, cache=self._cache)
        return _Entry(runner=GuardedRunner(trees), size_bytes=_weight_bytes(model.runner.parts))

    def _place(self, model_id: str) -> Placement:
        """Where a model goes; on a GPU it may have to make do with less than it wants."""
        needs = find_needs(model_id)
        if self._placement.device.type != "cuda" or needs is None:
            return self._placement
        there = memory_there(self._placement.device)
        memory = plan_memory(needs, there, asked=self._config.weights)
        logger.info("%s: %s", model_id, memory.reason)
        return replace(self._placement, memory=memory)

    def _make_room(self, model_id: str) -> None:
        """Let go of models until one more fits, going by what its files hold."""
        if not self._entries:
            return
        limit = self._config.model_bytes
        if limit is None:
            limit = model_budget(memory_there(self._placement.device))
        folder = require_weights(model_id, model_dir=self._config.model_dir)
        size_bytes = count_parameters(folder) * self._placement.dtype.itemsize
        while self._entries and self.size_bytes + size_bytes > limit:
            gone = next(iter(self._entries))
            del self._entries[gone]
            logger.info("%s leaves memory to make room for %s", gone, model_id)
        # Modules and the hooks on them refer to each other.
        gc.collect()
        if self._placement.device.type == "cuda":
            torch.cuda.empty_cache()


def _weight_bytes(parts: dict[str, Any]) -> int:
    modules = [part for part in parts.values() if isinstance(part, torch.nn.Module)]
    return sum(weight.nbytes for module in modules for weight in module.parameters())
