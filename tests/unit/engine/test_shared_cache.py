"""The cache of exact values."""

from __future__ import annotations

from engine.caching.shared import SharedCache


def test_what_was_used_last_stays_within_the_limit() -> None:
    cache = SharedCache(limit_bytes=10)
    cache.put("texts", "a", 1, size_bytes=4)
    cache.put("texts", "b", 2, size_bytes=4)
    assert cache.get("texts", "a") == 1
    cache.put("texts", "c", 3, size_bytes=4)
    assert [cache.get("texts", key) for key in "abc"] == [1, None, 3]
    assert cache.size_bytes == 8


def test_hits_are_counted_by_kind() -> None:
    cache = SharedCache(limit_bytes=10)
    cache.put("texts", "a", 1, size_bytes=1)
    assert cache.get("states", "a") is None
    assert cache.get("texts", "a") == 1
    assert (cache.counters["texts"].hits, cache.counters["texts"].misses) == (1, 0)
    assert (cache.counters["states"].hits, cache.counters["states"].misses) == (0, 1)


def test_a_value_put_again_counts_once() -> None:
    cache = SharedCache(limit_bytes=10)
    cache.put("texts", "a", 1, size_bytes=6)
    cache.put("texts", "a", 2, size_bytes=7)
    assert (cache.get("texts", "a"), cache.size_bytes) == (2, 7)


def test_a_limit_of_nothing_keeps_nothing() -> None:
    cache = SharedCache(limit_bytes=0)
    cache.put("texts", "a", 1, size_bytes=1)
    assert (cache.get("texts", "a"), cache.size_bytes) == (None, 0)


def test_a_value_beyond_the_limit_does_not_push_out_the_others() -> None:
    cache = SharedCache(limit_bytes=10)
    cache.put("texts", "a", 1, size_bytes=4)
    cache.put("states", "b", 2, size_bytes=11)
    assert cache.get("texts", "a") == 1
    cache.clear()
    assert (cache.get("texts", "a"), cache.size_bytes) == (None, 0)
