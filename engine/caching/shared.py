"""Exact values kept across requests: prompt embeddings, and states at the end of shared edges."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any


@dataclass
class CacheCounters:
    """How often a kind of value was asked for and there, or not there."""

    hits: int = 0
    misses: int = 0


class SharedCache:
    """Keeps the most recently used values within a limit in bytes; a limit of 0 keeps nothing.

    A key must hold all that decides its value: weights, precision, text, seed, shape, way.
    """

    def __init__(self, *, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[tuple[str, Hashable], tuple[Any, int]] = OrderedDict()
        self.size_bytes = 0
        self.counters: dict[str, CacheCounters] = {}

    def get(self, kind: str, key: Hashable) -> Any | None:
        """The value, which must not be changed; None where there is none (any more)."""
        counters = self.counters.setdefault(kind, CacheCounters())
        entry = self._entries.get((kind, key))
        if entry is None:
            counters.misses += 1
            return None
        counters.hits += 1
        self._entries.move_to_end((kind, key))
        return entry[0]

    def put(self, kind: str, key: Hashable, value: Any, *, size_bytes: int) -> None:
        """Keep a value; the ones not used for longest make room for it."""
        if size_bytes > self._limit_bytes:
            return
        self._drop((kind, key))
        while self.size_bytes + size_bytes > self._limit_bytes:
            self._drop(next(iter(self._entries)))
        self._entries[kind, key] = (value, size_bytes)
        self.size_bytes += size_bytes

    def clear(self) -> None:
        """Forget all values, so that their memory can be used otherwise."""
        self._entries.clear()
        self.size_bytes = 0

    def _drop(self, entry_key: tuple[str, Hashable]) -> None:
        _, size_bytes = self._entries.pop(entry_key, (None, 0))
        self.size_bytes -= size_bytes
