"""A denoising run between two steps: its tensors as one value, which a file can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from engine.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True)
class LatentState:
    """Everything needed to continue a run bit for bit.

    `latents` has the pipeline's latent shape (B, C, F, H, W) or packed (B, S, C), float32.
    `history` holds what the noise scheduler remembers (past predictions, order, step index),
    `memory` what a step cache remembers between two steps of one edge.
    `rng` is the state of the generator, for solvers that draw noise while stepping.
    `prediction` is what a draft shows: the clean latents that the run is heading for.
    """

    step: int
    latents: torch.Tensor
    history: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    rng: torch.Tensor | None = None
    prediction: torch.Tensor | None = None

    @property
    def shown(self) -> torch.Tensor:
        """The latents to look at: where a draft stands there is still noise in its own."""
        return self.latents if self.prediction is None else self.prediction

    @property
    def size_bytes(self) -> int:
        """Memory of all its tensors."""
        tensors: dict[str, torch.Tensor] = {}
        self.to_document("", tensors)
        return sum(tensor.nbytes for tensor in tensors.values())

    def row(self, index: int) -> LatentState:
        """One row of the batch as a state of its own, in memory of its own."""
        own = self._with_tensors(lambda tensor: tensor[index : index + 1].clone())
        return replace(own, rng=None)

    def to(self, device: torch.device) -> LatentState:
        """The state where the model computes; schedules and generators stay on the CPU."""
        return self._with_tensors(lambda tensor: tensor.to(device))

    def to_document(self, prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
        """Plain values for JSON; the tensors go to `tensors`, under names with the prefix."""
        tensors[f"{prefix}latents"] = self.latents.contiguous()
        if self.rng is not None:
            tensors[f"{prefix}rng"] = self.rng
        if self.prediction is not None:
            tensors[f"{prefix}prediction"] = self.prediction.contiguous()
        return {
            "step": self.step,
            "history": _flatten(self.history, f"{prefix}history", tensors),
            "memory": _flatten(self.memory, f"{prefix}memory", tensors),
        }

    @classmethod
    def from_document(
        cls, document: Mapping[str, Any], prefix: str, tensors: Mapping[str, torch.Tensor]
    ) -> LatentState:
        """Read what `to_document` made."""
        return cls(
            step=document["step"],
            latents=tensors[f"{prefix}latents"],
            history=_unflatten(document["history"], tensors),
            memory=_unflatten(document["memory"], tensors),
            rng=tensors.get(f"{prefix}rng"),
            prediction=tensors.get(f"{prefix}prediction"),
        )

    def _with_tensors(self, change: Callable[[torch.Tensor], torch.Tensor]) -> LatentState:
        shape = self.latents.shape

        def changed(value: dict[str, Any]) -> dict[str, Any]:
            merged: dict[str, Any] = _merged([value], shape, lambda rows: change(rows[0]))
            return merged

        return replace(
            self,
            latents=change(self.latents),
            history=changed(self.history),
            memory=changed(self.memory),
            prediction=None if self.prediction is None else change(self.prediction),
        )


def draft_end(state: LatentState, prediction: torch.Tensor | None) -> LatentState:
    """The state where a draft ends, with what it shows; InvalidRequest where that is not known."""
    if prediction is not None and prediction.numel() < state.latents.numel():
        # Behind the picture stand the latents of its sound, which a draft leaves out.
        picture = prediction.flatten(1)
        prediction = torch.cat([picture, state.latents[:, picture.shape[1] :]], dim=1)
    if prediction is None or prediction.shape != state.latents.shape:
        raise InvalidRequest("draft_step", "This model does not show what a draft is heading for.")
    return replace(state, prediction=prediction)


def stack_states(states: Sequence[LatentState]) -> LatentState:
    """The states, all at one step of equal schedules, as the rows of one state.

    `rng` is kept of a single state only: rows would draw other noise together than alone.
    """
    if len(states) == 1:
        return states[0]
    shape = states[0].latents.shape
    return LatentState(
        step=states[0].step,
        latents=torch.cat([state.latents for state in states]),
        history=_merged([state.history for state in states], shape, torch.cat),
        memory=_merged([state.memory for state in states], shape, torch.cat),
    )


def _merged(
    values: Sequence[Any],
    shape: torch.Size,
    merge: Callable[[list[torch.Tensor]], torch.Tensor],
) -> Any:
    """Histories as one: what has a row per latent is merged, the rest is equal in all of them."""
    first = values[0]
    if isinstance(first, torch.Tensor) and first.shape == shape:
        return merge(list(values))
    if isinstance(first, dict):
        return {name: _merged([each[name] for each in values], shape, merge) for name in first}
    if isinstance(first, list):
        return [_merged(items, shape, merge) for items in zip(*values, strict=True)]
    return first


def _flatten(value: Any, path: str, tensors: dict[str, torch.Tensor]) -> Any:
    """Move each tensor to `tensors`, a reference in its place; refuse what JSON cannot hold."""
    if isinstance(value, torch.Tensor):
        tensors[path] = value.contiguous()
        return {"tensor": path}
    if isinstance(value, dict):
        return {
            "dict": {key: _flatten(item, f"{path}.{key}", tensors) for key, item in value.items()}
        }
    if isinstance(value, list | tuple):
        return {"list": [_flatten(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise InvalidRequest("state", f"The noise scheduler keeps a {type(value).__name__} in {path}.")


def _unflatten(document: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    kind, value = next(iter(document.items()))
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {key: _unflatten(item, tensors) for key, item in value.items()}
    if kind == "list":
        return [_unflatten(item, tensors) for item in value]
    return value
