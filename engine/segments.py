"""Run any slice of the timesteps of an unmodified diffusers pipeline, from state to state.

The pipeline sees a noise scheduler whose `timesteps` are the slice, while the inner noise
scheduler keeps its whole schedule and its history. Cutting `timesteps` of the scheduler itself
would break multistep solvers, whose order and corrector depend on the place in the schedule.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from engine.errors import InvalidRequest
from engine.states import LatentState

# Step of the schedule, prediction, sample, noise level: the prediction that the solver gets.
Steer = Callable[[int, torch.Tensor, torch.Tensor, float], torch.Tensor]


class SegmentScheduler:
    """A noise scheduler that shows steps [start, stop) of `inner` and resumes its history.

    Everything but the slice is the inner scheduler's: attributes, config, class, `scale_noise`.
    Without `stop` the slice goes to the end. `on_schedule` is called when the schedule is set.
    `steer` may change what it is told of a prediction.
    Solvers that draw noise while stepping draw it from `generator`, also where a pipeline forgets
    to hand it on.
    """

    def __init__(
        self,
        inner: Any,
        *,
        start: int,
        stop: int | None,
        history: dict[str, Any],
        generator: torch.Generator | None = None,
        on_schedule: Callable[[], None] = lambda: None,
        steer: Steer | None = None,
    ) -> None:
        self._inner = inner
        self._start = start
        self._stop = stop
        self._history = history
        self._generator = generator
        self._on_schedule = on_schedule
        self._steer = steer
        self._num_stepped = 0
        self._fresh: dict[str, Any] = {}
        self._last_step: tuple[torch.Tensor, torch.Tensor] | None = None
        # Pipelines look at its parameters before they call it.
        self.set_timesteps = functools.update_wrapper(
            functools.partial(self._set_timesteps), inner.set_timesteps
        )
        self._draws_noise = "generator" in inspect.signature(inner.step).parameters

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> SegmentScheduler:
        """Some pipelines step a copy beside the scheduler: sound beside the picture."""
        return SegmentScheduler(
            copy.deepcopy(self._inner, memo),
            start=self._start,
            stop=self._stop,
            history=self._history,
            generator=self._generator,
        )

    # Pipelines ask what kind of noise scheduler they have.
    __class__: Any = property(lambda self: type(self._inner))

    @property
    def timesteps(self) -> torch.Tensor:
        timesteps: torch.Tensor = self._inner.timesteps[self._start : self._stop]
        return timesteps

    @property
    def sigmas(self) -> torch.Tensor:
        """Noise levels from the segment's first step on: pipelines index them by their own step."""
        sigmas: torch.Tensor = self._inner.sigmas[self._start :]
        return sigmas

    def step(self, *args: Any, **kwargs: Any) -> Any:
        if self._draws_noise and self._generator is not None:
            kwargs.setdefault("generator", self._generator)
        if self._steer is not None:
            step = self._start + self._num_stepped
            sigma = float(self._inner.sigmas[step])
            args = (self._steer(step, args[0], args[2], sigma), *args[1:])
        self._num_stepped += 1
        self._last_step = args[0], args[2]
        return self._inner.step(*args, **kwargs)

    def clean(self, index: int) -> torch.Tensor | None:
        """The clean latents that the step at `index` of the segment, the last one, was heading for.

        A flow-matching model predicts the velocity from them to the noise, so they are the sample
        without its part of it (Lipman et al. 2023, arXiv:2210.02747).
        """
        if self._last_step is None:
            return None
        velocity, sample = self._last_step
        clean = sample.float() - self.sigmas[index].to(sample.device) * velocity.float()
        return clean.to(sample.dtype)

    def _set_timesteps(self, *args: Any, **kwargs: Any) -> None:
        self._inner.set_timesteps(*args, **kwargs)
        if self._stop is not None and self._stop > len(self._inner.timesteps):
            raise InvalidRequest(
                "segment",
                f"The schedule has {len(self._inner.timesteps)} steps; {self._stop} asked.",
            )
        # Schedulers write into their lists in place, so the lists are copied on both sides.
        self._fresh = {name: copy.copy(value) for name, value in vars(self._inner).items()}
        for name, value in self._history.items():
            setattr(self._inner, name, copy.copy(value))
        self._on_schedule()

    def set_begin_index(self, begin_index: int = 0) -> None:
        self._inner.set_begin_index(self._start + begin_index)

    def history(self) -> dict[str, Any]:
        """What stepping changed in the inner scheduler since its schedule was set."""
        return {
            name: copy.copy(value)
            for name, value in vars(self._inner).items()
            if name not in self._fresh or _differs(value, self._fresh[name])
        }


def initial_state(
    pipeline: Any, *, generator: torch.Generator, first_step: int = 0, **call: Any
) -> LatentState:
    """The state before the first step: the noise that the pipeline itself draws."""
    return _run(pipeline, stop=0, state=None, generator=generator, first_step=first_step, call=call)


def run_segment(
    pipeline: Any,
    *,
    stop: int,
    state: LatentState | None = None,
    generator: torch.Generator | None = None,
    first_step: int = 0,
    steer: Steer | None = None,
    **call: Any,
) -> LatentState:
    """Run the pipeline's own loop from `state` (or from noise) up to step `stop`.

    Steps are counted from `first_step` of the schedule: a picture that is changed a little begins
    in its midst. `call` goes to the pipeline unchanged, `num_inference_steps` of the whole schedule
    included; the result equals the uncut run bit for bit. `steer` may change what the noise
    scheduler is told that the model predicted.
    """
    start = 0 if state is None else state.step
    if not start < stop:
        raise InvalidRequest(
            "segment", f"A segment must move on: it starts at {start}, ends at {stop}."
        )
    return _run(
        pipeline,
        stop=stop,
        state=state,
        generator=generator,
        first_step=first_step,
        call=call,
        steer=steer,
    )


def _run(
    pipeline: Any,
    *,
    stop: int,
    state: LatentState | None,
    generator: torch.Generator | None,
    first_step: int,
    call: dict[str, Any],
    steer: Steer | None = None,
) -> LatentState:
    if state is not None:
        call["latents"] = state.latents
        if generator is not None and state.rng is not None:
            generator.set_state(state.rng)
    inner = pipeline.scheduler

    def stop_at_noise() -> None:
        # The loop looks at this before every step; an empty schedule would trip some pipelines.
        if not stop:
            pipeline._interrupt = True

    proxy = SegmentScheduler(
        _own_copy(inner),
        start=first_step + (state.step if state else 0),
        stop=first_step + stop if stop else None,
        history=state.history if state else {},
        generator=generator,
        on_schedule=stop_at_noise,
        steer=steer,
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
