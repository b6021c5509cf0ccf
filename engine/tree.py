"""The denoising tree of a family: the edges that its variants share, and its cut into groups.

A family is the requests of one affinity key: they differ in nothing but the values of their slots.
Up to a slot's fork step the denoising is conditioned on a prompt without the slot's words, so all
values share those steps; from the fork step on each value goes its own way. No torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from engine.types import GenerationRequest

# Name and value of each slot that the conditioning of an edge holds.
Fixed = tuple[tuple[str, str], ...]
# One edge of a request's way through the tree: where it stops, and what it is conditioned on.
Hop = tuple[int, Fixed]


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """Steps [start, stop) that run once for all `members` (request ids).

    The conditioning holds the values in `fixed` and leaves the other slots out. `parent` is the
    place of the edge before it in `DenoisingTree.edges`; `num_leaves` counts the different
    renders at its end, so members that ask for the same pixels count once.
    """

    start: int
    stop: int
    fixed: Fixed
    members: tuple[str, ...]
    parent: int | None
    num_leaves: int

    @property
    def num_steps(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, kw_only=True, slots=True)
class DenoisingTree:
    """Edges in depth-first order, parents first; a leaf is an edge that ends at the last step."""

    edges: tuple[Edge, ...]
    num_steps: int

    def is_leaf(self, edge: Edge) -> bool:
        return edge.stop == self.num_steps

    def ways(self) -> Iterator[tuple[Edge, ...]]:
        """For each leaf the edges from the first step to it."""
        for edge in self.edges:
            if self.is_leaf(edge):
                yield self._way(edge)

    def _way(self, edge: Edge) -> tuple[Edge, ...]:
        way = [edge]
        while way[-1].parent is not None:
            way.append(self.edges[way[-1].parent])
        return tuple(reversed(way))


def build_tree(requests: Sequence[GenerationRequest]) -> DenoisingTree:
    """The tree of one family whose slots all have fork steps (`settle_forks`)."""
    return _build(_in_order(requests))


def hops(request: GenerationRequest) -> tuple[Hop, ...]:
    """The request's way through the tree; a function of the request alone."""
    num_steps = request.settings.last_step
    values = request.slot_values()
    forks = {slot.name: slot.fork_step or 0 for slot in request.slots}
    stops = sorted({step for step in forks.values() if step > 0} | {num_steps})
    starts = (0, *stops[:-1])
    return tuple(
        (stop, tuple((name, values[name]) for name in sorted(values) if forks[name] <= start))
        for start, stop in zip(starts, stops, strict=True)
    )


def cut(
    requests: Sequence[GenerationRequest], *, max_group: int
) -> Iterator[tuple[list[GenerationRequest], DenoisingTree]]:
    """Cut a family with settled forks into groups, whole subtrees as far as `max_group` allows.

    Neighbouring subtrees go together while they fit. Each group has a tree of its own: it
    computes the edges on its way from the first step anew unless its worker still holds them.
    """
    ordered = _in_order(requests)
    ways = [way for _, way in ordered]
    for start, stop in _pieces(ways, (0, len(ordered)), 0, max_group):
        group = ordered[start:stop]
        yield [request for request, _ in group], _build(group)


def _build(ordered: Sequence[tuple[GenerationRequest, tuple[Hop, ...]]]) -> DenoisingTree:
    edges: list[Edge] = []
    members: list[list[str]] = []
    leaves: list[int] = []
    places: dict[tuple[int | None, Hop], int] = {}
    for request, whole_way in ordered:
        parent: int | None = None
        start = 0
        way: list[int] = []
        is_new = False
        for hop in whole_way:
            place = places.setdefault((parent, hop), len(edges))
            is_new = place == len(edges)
            if is_new:
                edges.append(_edge(start, hop, parent))
                members.append([])
                leaves.append(0)
            members[place].append(request.request_id)
            way.append(place)
            parent, start = place, hop[0]
        # The last edge of the way is the leaf: where it is new, there is one more render.
        for place in way:
            leaves[place] += is_new
    return DenoisingTree(
        edges=tuple(
            replace(edge, members=tuple(ids), num_leaves=count)
            for edge, ids, count in zip(edges, members, leaves, strict=True)
        ),
        num_steps=ordered[0][0].settings.last_step,
    )


def _pieces(
    ways: Sequence[tuple[Hop, ...]], span: tuple[int, int], depth: int, max_group: int
) -> list[tuple[int, int]]:
    """Spans of at most `max_group` neighbouring ways, cut at forks as near the root as possible."""
    start, stop = span
    if stop - start <= max_group:
        return [span]
    if depth == len(ways[start]):  # one render that many requests ask for
        return [(at, min(at + max_group, stop)) for at in range(start, stop, max_group)]
    pieces: list[tuple[int, int]] = []
    for _, places in groupby(range(start, stop), key=lambda place: ways[place][depth]):
        child = list(places)
        for piece in _pieces(ways, (child[0], child[-1] + 1), depth + 1, max_group):
            if pieces and piece[1] - pieces[-1][0] <= max_group:
                pieces[-1] = (pieces[-1][0], piece[1])
            else:
                pieces.append(piece)
    return pieces


def _edge(start: int, hop: Hop, parent: int | None) -> Edge:
    stop, fixed = hop
    return Edge(start=start, stop=stop, fixed=fixed, members=(), parent=parent, num_leaves=0)


def _in_order(
    requests: Sequence[GenerationRequest],
) -> list[tuple[GenerationRequest, tuple[Hop, ...]]]:
    """Requests with their ways, siblings side by side.

    Values and ids decide, never the order given: equal sets of requests make equal plans.
    """
    return sorted(
        ((request, hops(request)) for request in requests),
        key=lambda item: (item[1], item[0].request_id),
    )
