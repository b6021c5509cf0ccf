"""The sharing tree of a batch and the lineage of a variant, as pages draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from app.access import Actor
from app.models import Artifact, Batch
from app.services.sharing import get_shared_group
from app.web.formatting import count
from app.web.tiles import ValueChip, kinds_of, spec_of
from engine.tree import Fixed

# A tree with more leaves starts folded, and a batch with more variants asks before drawing it.
MAX_OPEN_LEAVES = 24
MAX_INLINE_VARIANTS = 64

SAVED_WORDS: Mapping[str, str] = {
    "shared_prefix": "shared with its siblings",
    "unconditional": "unconditional half shared",
    "guidance": "guidance held",
    "state_cache": "kept from an earlier group",
    "step_cache": "skipped between steps",
    "duplicate": "the same picture as another variant",
    "draft": "computed by its draft",
}
DECISIONS: Mapping[str, str] = {
    "kept": "The promise was kept",
    "narrowed": "Shares less since a check in its family failed",
    "re-rendered": "Rendered again with less shared, because a check failed",
    "replaced": "Delivered as it is without sharing, because its check failed",
}


@dataclass(frozen=True, kw_only=True)
class TreeNode:
    """An edge: steps [start, stop), what it settles, and what grows from it."""

    start: int
    stop: int
    chips: Sequence[ValueChip]
    leaves: int
    ordinal: int | None
    variant_id: str | None
    is_open: bool
    children: list[TreeNode] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class LineageStep:
    """One stretch of a variant's way: its steps, what conditioned it, who shared it."""

    start: int
    stop: int
    text: str
    shared: str
    note: str


def sharing_context(session: Session, actor: Actor, batch: Batch) -> dict[str, Any]:
    """The tree of the batch's first group; `nodes` is empty before it is expanded."""
    group = get_shared_group(session, actor, batch.id)
    if group is None:
        return {"nodes": [], "tree_steps": 0, "tree_leaves": 0}
    kinds = kinds_of(spec_of(batch))
    is_small = len(group.ordinals) <= MAX_OPEN_LEAVES
    nodes: list[TreeNode] = []
    roots: list[TreeNode] = []
    for edge in group.tree.edges:
        parent = None if edge.parent is None else group.tree.edges[edge.parent]
        is_leaf = group.tree.is_leaf(edge)
        node = TreeNode(
            start=edge.start,
            stop=edge.stop,
            chips=_settled(edge.fixed, parent.fixed if parent else (), kinds),
            leaves=edge.num_leaves,
            ordinal=group.ordinals[edge.members[0]] if is_leaf else None,
            variant_id=edge.members[0] if is_leaf else None,
            is_open=is_small or parent is None,
        )
        nodes.append(node)
        (roots if edge.parent is None else nodes[edge.parent].children).append(node)
    return {
        "nodes": roots,
        "tree_steps": group.tree.num_steps,
        "tree_leaves": len(group.ordinals),
    }


def lineage(artifact: Artifact) -> list[LineageStep]:
    """The way of a render through the tree; empty where its worker did not tell."""
    edges = artifact.provenance.get("edges")
    if not isinstance(edges, list):
        return []
    resumed = artifact.provenance.get("resumed", {})
    saved = artifact.provenance.get("forwards", {}).get("saved", {})
    drafted_to = resumed.get("from_step", 0) if "draft" in saved else 0
    return [
        LineageStep(
            start=edge["start"],
            stop=edge["stop"],
            text=_conditioning(edge.get("texts", [])),
            shared=_shared(edge["leaves"]),
            note=_note(edge, drafted_to),
        )
        for edge in edges
    ]


def work_facts(artifact: Artifact) -> list[tuple[str, str]]:
    """What was computed and what was saved, by kind, and what the guard said."""
    made = artifact.provenance
    forwards = made.get("forwards")
    facts: list[tuple[str, str]] = []
    if isinstance(forwards, Mapping):
        facts.append(("Forwards computed", _number(forwards.get("computed", 0))))
        for kind, saved in forwards.get("saved", {}).items():
            words = SAVED_WORDS.get(kind, kind.replace("_", " "))
            facts.append(("Forwards saved", f"{_number(saved)} ({words})"))
    guard = made.get("guard")
    if isinstance(guard, Mapping):
        facts.append(("Quality check", _guard_words(guard)))
    return facts


def _settled(fixed: Fixed, before: Fixed, kinds: Mapping[str, str]) -> list[ValueChip]:
    known = dict(before)
    return [
        ValueChip(name=name, kind=kinds.get(name, "choice"), text=value.replace("\x1f", " / "))
        for name, value in fixed
        if name not in known and value
    ]


def _conditioning(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"the mean of {count(len(texts), 'prompt')}"


def _shared(leaves: int) -> str:
    return "its own" if leaves == 1 else f"shared by {leaves}"


def _note(edge: Mapping[str, Any], drafted_to: int) -> str:
    if edge["stop"] <= drafted_to:
        return "computed by its draft"
    if edge["start"] < drafted_to:
        return f"up to step {drafted_to} by its draft"
    if edge.get("from_cache"):
        return "kept from an earlier group"
    batch = edge.get("batch", 1)
    return f"run beside {count(batch - 1, 'other')}" if batch > 1 else ""


def _guard_words(guard: Mapping[str, Any]) -> str:
    words = DECISIONS.get(guard.get("decision", ""), "Checked")
    if not guard.get("sampled") and not guard.get("screened"):
        return f"{words}; others of its family were compared with renders that share nothing"
    reference = "exact render" if guard.get("sampled") else "render that shares nothing"
    measured = [
        f"{label} {guard[key]:.2f}{unit}"
        for key, label, unit in (
            ("projection", "change", " of its own"),
            ("drift", "drift", " of its own"),
            ("psnr", "PSNR", " dB"),
        )
        if guard.get(key) is not None
    ]
    return f"{words}; compared with its {reference}: {', '.join(measured) or 'equal'}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
