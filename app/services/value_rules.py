"""Values that do not go together: which combinations a product leaves out, counted and indexed.

The product is walked parameter by parameter; what matters of the values chosen so far is only
which rules they still agree with. So combinations are counted, and any of them is found by its
number, without going through the others (a decision diagram over the parameters).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final

from app.errors import InvalidInput

MAX_RULES: Final = 100
# Numbers kept in memory for one product; rules that need more are too entangled.
MAX_ENTRIES: Final = 1_000_000
# What a choice among few values counts for.
NODE_ENTRIES: Final = 50

# Sets of values by parameter: a combination in all of them is left out.
Forbidden = Mapping[str, frozenset[str]]
# Which rules the values chosen so far agree with.
_Open = frozenset[int]


class RuledValues(dict[str, tuple[str, ...]]):
    """Lists of values by parameter, and the combinations of them that are left out."""

    def __init__(
        self, values: Mapping[str, Sequence[str]], forbidden: Sequence[Forbidden] = ()
    ) -> None:
        super().__init__({name: tuple(given) for name, given in values.items()})
        self.forbidden = tuple(forbidden)


@dataclass(frozen=True, kw_only=True)
class _Node:
    """The choice of one parameter's value: where each leads, and how many combinations precede."""

    children: tuple[_Open | None, ...]
    starts: tuple[int, ...]


class AllowedCombinations:
    """The combinations of a product that no rule leaves out, in its order, by their number."""

    def __init__(self, values: RuledValues) -> None:
        """InvalidInput for rules that are too entangled to be counted."""
        self._lists = list(values.items())
        names = list(values)
        self._ends = [max(map(names.index, box)) for box in values.forbidden]
        self._levels = [
            _Level(given, [box.get(name) for box in values.forbidden])
            for name, given in self._lists
        ]
        # Combinations of all parameters from each one on.
        sizes = [len(given) for _, given in self._lists]
        self._rest = [math.prod(sizes[level:]) for level in range(len(sizes) + 1)]
        self._nodes: dict[tuple[int, _Open], _Node] = {}
        self._entries = 0
        self._first: _Open = frozenset(range(len(values.forbidden)))
        self.size = self._count(0, self._first)

    def at(self, index: int) -> dict[str, str]:
        """The combination with this number, from 0 to `size` - 1."""
        chosen: dict[str, str] = {}
        open_rules: _Open | None = self._first
        for level, (name, given) in enumerate(self._lists):
            assert open_rules is not None
            if not open_rules:
                position, index = divmod(index, self._rest[level + 1])
            else:
                node = self._nodes[level, open_rules]
                position = bisect_right(node.starts, index) - 1
                index -= node.starts[position]
                open_rules = node.children[position]
            chosen[name] = given[position]
        return chosen

    def _count(self, level: int, open_rules: _Open | None) -> int:
        if open_rules is None:
            return 0
        if not open_rules:
            return self._rest[level]
        if (level, open_rules) not in self._nodes:
            self._nodes[level, open_rules] = self._make(level, open_rules)
        return self._nodes[level, open_rules].starts[-1]

    def _make(self, level: int, open_rules: _Open) -> _Node:
        self._entries += max(NODE_ENTRIES, len(self._levels[level].given))
        if self._entries > MAX_ENTRIES:
            raise InvalidInput(
                "These rules are too entangled to count what they leave; use fewer, or let them"
                " name the same parameters.",
                field="rules",
            )
        children: list[_Open | None] = []
        for agreeing in self._levels[level].agreeing:
            left = open_rules & agreeing
            is_out = any(self._ends[rule] == level for rule in left)
            children.append(None if is_out else left)
        counts = {child: self._count(level + 1, child) for child in set(children)}
        starts = accumulate((counts[child] for child in children), initial=0)
        return _Node(children=tuple(children), starts=tuple(starts))


@dataclass(frozen=True)
class _Level:
    """One parameter: its values, and what each rule asks of it (None: nothing)."""

    given: tuple[str, ...]
    conditions: Sequence[frozenset[str] | None]

    @cached_property
    def agreeing(self) -> tuple[_Open, ...]:
        """By value, the rules that it agrees with."""
        free = {rule for rule, named in enumerate(self.conditions) if named is None}
        asking = [(rule, named) for rule, named in enumerate(self.conditions) if named is not None]
        known: dict[_Open, _Open] = {}
        found: list[_Open] = []
        for value in self.given:
            rules = frozenset(free.union(rule for rule, named in asking if value in named))
            found.append(known.setdefault(rules, rules))
        return tuple(found)
