"""What running the edges of a tree took, and what each result says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.caching.steps import EQUAL_ROWS, ForwardTally
from engine.registry import forwards_per_step
from engine.states import LatentState
from engine.suspending import OpenEdge
from engine.tree import DenoisingTree, Edge
from engine.types import GenerationRequest, RenderSettings

# Forwards that a draft has computed: the same ones, so they make nothing approximate.
DRAFT_STEPS = "draft"


@dataclass(kw_only=True)
class Branch:
    """An edge being run: `texts` condition it, `state` stands at its end while it is needed.

    Forwards and seconds are this edge's part of its batch; `saved` counts forwards by kind,
    `num_steered` the steps that followed the family's control. A leaf that was decoded together
    with others has `frames` (F, H, W, 3). `pause` is where it goes on, in its midst or at its end;
    `resumed_at` the step where an earlier run left it, which may have been a draft.
    """

    edge: Edge
    parent: Branch | None
    requests: Sequence[GenerationRequest]
    texts: tuple[str, ...]
    children: list[Branch] = field(default_factory=list)
    state: LatentState | None = None
    pause: LatentState | None = None
    resumed_at: int | None = None
    num_steered: int = 0
    frames: NDArray[np.uint8] | None = None
    num_waiting: int = 0
    batch_size: int = 0
    text_seconds: float = 0.0
    denoise_seconds: float = 0.0
    decode_seconds: float = 0.0
    computed: float = 0.0
    saved: dict[str, float] = field(default_factory=dict)

    @property
    def way(self) -> list[Branch]:
        """The branches from the first step to this one."""
        before = [] if self.parent is None else self.parent.way
        return [*before, self]

    @property
    def key(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """What decides the state at its end within a family: the texts up to here."""
        return tuple((branch.edge.stop, branch.texts) for branch in self.way)

    @property
    def is_leaf(self) -> bool:
        return not self.children

    @property
    def start(self) -> int:
        """The step that is run next."""
        return self.edge.start if self.pause is None else self.pause.step

    @property
    def is_needed(self) -> bool:
        """Whether the state at its end is missing for somebody."""
        return self.is_leaf or any(
            child.pause is None and child.is_needed for child in self.children
        )

    @property
    def priced(self) -> float:
        """Forwards that are paid for: those that equal rows of a batch spared count as well.

        A price is known before it is known how a worker will batch; it is one forward at most.
        """
        return self.computed + self.saved.get(EQUAL_ROWS, 0.0)

    def note(self, *, seconds: float, tally: ForwardTally, batch_size: int) -> None:
        """Take this row's part of what its batch took."""
        self.batch_size = batch_size
        self.denoise_seconds += seconds / batch_size
        self.computed += tally.computed / batch_size
        for kind, rows in tally.saved.items():
            self.saved[kind] = self.saved.get(kind, 0.0) + rows / batch_size

    def stand_at(self, state: LatentState) -> None:
        """It was run up to this state: to its end, or to be taken up there."""
        if state.step == self.edge.stop:
            self.state, self.pause = state, None
        else:
            self.pause = state

    def take_up(self, opened: OpenEdge) -> None:
        """Go on where an earlier run of the edge stopped, with what that took."""
        self.batch_size = opened.batch_size
        self.text_seconds = opened.text_seconds
        self.denoise_seconds = opened.denoise_seconds
        self.computed = opened.computed
        self.saved = dict(opened.saved)
        self.pause = opened.state
        self.resumed_at = self.edge.stop if opened.state is None else opened.state.step

    def continue_draft(self, state: LatentState, settings: RenderSettings) -> None:
        """Go on where a draft ended, which paid for the steps before."""
        self.pause, self.resumed_at = state, state.step
        self.saved = {DRAFT_STEPS: float(full_forwards(settings, state.step))}

    def opened(self) -> OpenEdge | None:
        """What a later run can take up; None where nothing was run."""
        state = self.pause if self.state is None else self.state
        if state is None and not self.batch_size and not self.saved:
            return None
        return OpenEdge(
            state=state,
            batch_size=self.batch_size,
            text_seconds=self.text_seconds,
            denoise_seconds=self.denoise_seconds,
            computed=self.computed,
            saved=self.saved,
        )

    def release_parent(self) -> None:
        """Drop the parent's state when no sibling needs it any more."""
        if self.parent is not None:
            self.parent.num_waiting -= 1
            if not self.parent.num_waiting:
                self.parent.state = None


@dataclass(frozen=True, kw_only=True)
class Account:
    """What one render took: its own part, and an equal part with the others of what they shared."""

    text_seconds: float
    denoise_seconds: float
    computed: float
    priced: float
    saved: Mapping[str, float]
    edges: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, leaf: Branch) -> Account:
        """Add up the way to a leaf; `computed` and `saved` make the forwards of a run alone."""
        saved: dict[str, float] = {}
        text_seconds = denoise_seconds = computed = priced = 0.0
        for branch in leaf.way:
            others = branch.edge.num_leaves
            text_seconds += branch.text_seconds / others
            denoise_seconds += branch.denoise_seconds / others
            computed += branch.computed / others
            priced += branch.priced / others
            shared = {"shared_prefix": branch.computed * (others - 1) / others}
            for kind, count in (shared | branch.saved).items():
                saved[kind] = saved.get(kind, 0.0) + count
        return cls(
            text_seconds=text_seconds,
            denoise_seconds=denoise_seconds,
            computed=computed,
            priced=priced,
            saved={kind: round(count, 4) for kind, count in saved.items() if count},
            edges=[_edge_facts(branch) for branch in leaf.way],
        )

    @property
    def is_exact(self) -> bool:
        """Whether nothing was shared, batched or spared: the bits are those of a plain run."""
        spared = self.saved.keys() - {DRAFT_STEPS}
        return len(self.edges) == 1 and self.edges[0]["batch"] == 1 and not spared


def grow(
    tree: DenoisingTree, requests: Mapping[str, GenerationRequest], texts: Sequence[tuple[str, ...]]
) -> list[Branch]:
    """The branches of a tree and their texts, in the order of its edges."""
    branches: list[Branch] = []
    for edge, edge_texts in zip(tree.edges, texts, strict=True):
        parent = None if edge.parent is None else branches[edge.parent]
        branch = Branch(
            edge=edge,
            parent=parent,
            requests=[requests[member] for member in edge.members],
            texts=edge_texts,
        )
        if parent is not None:
            parent.children.append(branch)
            parent.num_waiting += 1
        branches.append(branch)
    return branches


def row_parents(batch: Sequence[Branch]) -> list[int]:
    """For each row the first row that starts from the same state."""
    if batch[0].pause is not None:
        return list(range(len(batch)))
    firsts: dict[int, int] = {}
    return [firsts.setdefault(id(branch.parent), row) for row, branch in enumerate(batch)]


def full_forwards(settings: RenderSettings, num_steps: int | None = None) -> int:
    """Forwards of so many steps (all of them by default) with nothing spared."""
    steps = settings.last_step if num_steps is None else num_steps
    return steps * forwards_per_step(settings)


def _edge_facts(branch: Branch) -> dict[str, Any]:
    edge = branch.edge
    return {
        "start": edge.start,
        "stop": edge.stop,
        "fixed": [name for name, _ in edge.fixed],
        "texts": list(branch.texts),
        "leaves": edge.num_leaves,
        "batch": branch.batch_size,
        "from_cache": not branch.batch_size,
    }
