"""Holds a family together: what a parameter leaves alone follows the family's control."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.branches import Branch
from engine.distances import UNCHANGED_SHARE
from engine.profiles import Coupling
from engine.segments import Steer


class FamilyControl:
    """The clean latents that a family's control was heading for at each step, for all the others.

    A variant's tokens move towards them, the less the more its own differ: half of `strength` of
    the way for the token whose difference is the median. Predictions are moved, not latents, so a
    solver of any order gets what it expects. Steps that the control has not run are left alone.
    """

    def __init__(self, coupling: Coupling, *, request_id: str) -> None:
        self._coupling = coupling
        self._request_id = request_id
        self._clean: dict[int, torch.Tensor] = {}

    def is_on(self, branch: Branch) -> bool:
        """Whether an edge is on the control's own way."""
        return self._request_id in branch.edge.members

    def steer(self, batch: Sequence[Branch], *, num_steps: int) -> Steer:
        """What moves the predictions of a batch's leaves, and remembers where the control heads."""
        first = int(self._coupling.first_share * num_steps)
        control_row = next((row for row, each in enumerate(batch) if self.is_on(each)), None)
        followers = [row for row, each in enumerate(batch) if each.is_leaf and row != control_row]

        def steer(
            step: int, prediction: torch.Tensor, sample: torch.Tensor, sigma: float
        ) -> torch.Tensor:
            if step < first or not sigma:
                return prediction
            clean = sample.float() - sigma * prediction.float()
            if control_row is not None:
                # The trail of a long clip is as large as many states.
                self._clean[step] = clean[control_row : control_row + 1].to("cpu", copy=True)
            if step not in self._clean or not followers:
                return prediction
            way = self._clean[step].to(clean.device) - clean[followers]
            steered = prediction.clone()
            moved = prediction[followers].float() - self._shares(way) * way / sigma
            steered[followers] = moved.to(prediction.dtype)
            for row in followers:
                batch[row].num_steered += 1
            return steered

        return steer

    def _shares(self, way: torch.Tensor) -> torch.Tensor:
        """How far each token goes; latents are (B, C, ...) or packed (B, S, C)."""
        channels = 2 if way.ndim == 3 else 1
        lengths = way.square().sum(dim=channels, keepdim=True)
        median = lengths.flatten(1).quantile(UNCHANGED_SHARE, dim=1)
        relative = lengths / median.clamp_min(torch.finfo(way.dtype).tiny).view(
            -1, *[1] * (way.ndim - 1)
        )
        return self._coupling.strength / (1 + relative.square())
