"""Drafts: runs that stop half-way and show where they head, and renders that go on from them.

What is shown is the model's prediction of the clean latents at the draft's last step. The state
there is that of the finished render, so its steps need not be computed again.
"""

from __future__ import annotations

from dataclasses import replace

from engine.branches import Branch
from engine.edge_runner import EdgeRunner
from engine.suspending import Suspension
from engine.types import GenerationResult


def continue_draft(leaf: Branch, edges: EdgeRunner, suspension: Suspension) -> None:
    """Let a leaf begin where its draft ended, if somebody has kept that state."""
    opened = suspension.find(edges.keys.draft(leaf))
    state = None if opened is None else opened.state
    if state is not None and leaf.edge.start <= state.step < leaf.edge.stop:
        leaf.continue_draft(state, edges.settings)


def as_draft(
    leaf: Branch, result: GenerationResult, edges: EdgeRunner, suspension: Suspension
) -> GenerationResult:
    """The result of a draft, with the state that its finished render can go on from."""
    settings = edges.settings
    facts = {"step": settings.draft_step, "of": settings.num_inference_steps}
    result = replace(result, provenance=result.provenance | {"draft": facts})
    if leaf.state is None or not edges.can_pause:
        return result
    state = replace(leaf.state, prediction=None)
    file = suspension.draft_file(edges.keys.draft(leaf), state, leaf.requests[0])
    return replace(result, state=file)
