"""Run any slice of the timesteps of an unmodified diffusers pipeline, from state to state.

The pipeline sees a noise scheduler whose `timesteps` are the slice, while the inner noise
scheduler keeps its whole schedule and its history. Cutting `timesteps` of the scheduler itself
would break multistep solvers, whose order and corrector depend on the place in the schedule.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from engine.errors import InvalidRequest

STATE_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class LatentState:
    """A denoising run between two steps: everything needed to continue it bit for bit.

    `latents` has the pipeline's latent shape (B, C, F, H, W) or packed (B, S, C), float32.
    `history` holds what the noise scheduler remembers (past predictions, order, step index).
    `rng` is the state of the generator, for solvers that draw noise while stepping.
    """

    step: int
    latents: torch.Tensor
    history: dict[str, Any] = field(default_factory=dict)
    rng: torch.Tensor | None = None

    @property
    def size_bytes(self) -> int:
        """Memory of all its tensors."""
        tensors = {"latents": self.latents}
        _flatten(self.history, "history", tensors)
        return sum(tensor.nbytes for tensor in tensors.values())

    def row(self, index: int) -> LatentState:
        """One row of the batch as a state of its own, in memory of its own."""
        shape = self.latents.shape
        return LatentState(
            step=self.step,
            latents=self.latents[index : index + 1].clone(),
            history=_merged([self.history], shape, lambda rows: rows[0][index : index + 1].clone()),
        )

    def save(self, folder: Path) -> None:
        """Write `state.safetensors`, then `state.json`, which marks the state as whole."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {"latents": self.latents.contiguous()}
        if self.rng is not None:
            tensors["rng"] = self.rng
        history = _flatten(self.history, "history", tensors)
        save_file(tensors, folder / "state.safetensors")
        document = {"version": STATE_VERSION, "step": self.step, "history": history}
        (folder / "state.json").write_text(json.dumps(document), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> LatentState:
        """Read a saved state; InvalidRequest when it is not whole or of another version."""
        try:
            document = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            tensors = load_file(folder / "state.safetensors")
        except (OSError, ValueError) as error:
            raise InvalidRequest(
                "state", f"{folder} holds no whole denoising state: {error}"
            ) from None
        if document.get("version") != STATE_VERSION:
            raise InvalidRequest(
                "state",
                f"{folder} was written in format {document.get('version')}, not {STATE_VERSION}.",
            )
        return cls(
            step=document["step"],
            latents=tensors["latents"],
            history=_unflatten(document["history"], tensors),
            rng=tensors.get("rng"),
        )


class SegmentScheduler:
    """A noise scheduler that shows steps [start, stop) of `inner` and resumes its history.

    Everything but the slice is the inner scheduler's: attributes, config, `step`, `scale_noise`.
    """

    def __init__(self, inner: Any, *, start: int, stop: int, history: dict[str, Any]) -> None:
        self._inner = inner
        self._start = start
        self._stop = stop
        self._history = history
        self._fresh: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def timesteps(self) -> torch.Tensor:
        timesteps: torch.Tensor = self._inner.timesteps[self._start : self._stop]
        return timesteps

    @property
    def sigmas(self) -> torch.Tensor:
        """Noise levels from the segment's first step on: pipelines index them by their own step."""
        sigmas: torch.Tensor = self._inner.sigmas[self._start :]
        return sigmas

    def set_timesteps(self, *args: Any, **kwargs: Any) -> None:
        self._inner.set_timesteps(*args, **kwargs)
        if self._stop > len(self._inner.timesteps):
            raise InvalidRequest(
                "segment",
                f"The schedule has {len(self._inner.timesteps)} steps; {self._stop} asked.",
            )
        # Schedulers write into their lists in place, so the lists are copied on both sides.
        self._fresh = {name: copy.copy(value) for name, value in vars(self._inner).items()}
        for name, value in self._history.items():
            setattr(self._inner, name, copy.copy(value))

    def set_begin_index(self, begin_index: int = 0) -> None:
        self._inner.set_begin_index(self._start + begin_index)

    def history(self) -> dict[str, Any]:
        """What stepping changed in the inner scheduler since its schedule was set."""
        return {
            name: copy.copy(value)
            for name, value in vars(self._inner).items()
            if name not in self._fresh or _differs(value, self._fresh[name])
        }


def initial_state(pipeline: Any, *, generator: torch.Generator, **call: Any) -> LatentState:
    """The state before the first step: the noise that the pipeline itself draws."""
    return _run(pipeline, stop=0, state=None, generator=generator, call=call)


def stack_states(states: Sequence[LatentState]) -> LatentState:
    """The states, all at one step of equal schedules, as the rows of one state.

    `rng` is kept of a single state only: rows would draw other noise together than alone.
    """
    if len(states) == 1:
        return states[0]
    return LatentState(
        step=states[0].step,
        latents=torch.cat([state.latents for state in states]),
        history=_merged([state.history for state in states], states[0].latents.shape, torch.cat),
    )


def run_segment(
    pipeline: Any,
    *,
    stop: int,
    state: LatentState | None = None,
    generator: torch.Generator | None = None,
    **call: Any,
) -> LatentState:
    """Run the pipeline's own loop from `state` (or from noise) up to step `stop`.

    `call` goes to the pipeline unchanged, `num_inference_steps` of the whole schedule included;
    the result equals the uncut run bit for bit.
    """
    start = 0 if state is None else state.step
    if not start < stop:
        raise InvalidRequest(
            "segment", f"A segment must move on: it starts at {start}, ends at {stop}."
        )
    return _run(pipeline, stop=stop, state=state, generator=generator, call=call)


def _run(
    pipeline: Any,
    *,
    stop: int,
    state: LatentState | None,
    generator: torch.Generator | None,
    call: dict[str, Any],
) -> LatentState:
    if state is not None:
        call["latents"] = state.latents
        if generator is not None and state.rng is not None:
            generator.set_state(state.rng)
    inner = pipeline.scheduler
    proxy = SegmentScheduler(
        _own_copy(inner),
        start=state.step if state else 0,
        stop=stop,
        history=state.history if state else {},
    )
    pipeline.scheduler = proxy
    try:
        output = pipeline(generator=generator, output_type="latent", return_dict=False, **call)
    finally:
        pipeline.scheduler = inner
    return LatentState(
        step=stop,
        latents=output[0],
        history=proxy.history(),
        rng=generator.get_state() if generator is not None else None,
    )


def _own_copy(scheduler: Any) -> Any:
    """A copy that steps without a trace in the original: schedulers write into their lists."""
    own = copy.copy(scheduler)
    for name, value in vars(scheduler).items():
        setattr(own, name, copy.copy(value))
    return own


def _differs(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.shape != right.shape or not torch.equal(left, right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) != len(right) or any(
            _differs(a, b) for a, b in zip(left, right, strict=True)
        )
    return type(left) is not type(right) or bool(left != right)


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
    if isinstance(value, list):
        return {"list": [_flatten(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    raise InvalidRequest("state", f"The noise scheduler keeps a {type(value).__name__} in {path}.")


def _unflatten(document: Any, tensors: dict[str, torch.Tensor]) -> Any:
    kind, value = next(iter(document.items()))
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {key: _unflatten(item, tensors) for key, item in value.items()}
    if kind == "list":
        return [_unflatten(item, tensors) for item in value]
    return value
