"""`Engine.generate`: requests in, frames out, one by one, each failing or cancelled alone."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import diffusers
import torch

from engine.caching.shared import SharedCache
from engine.calibrating import Calibrator
from engine.calibration import Calibration, find_calibration
from engine.config import EngineConfig
from engine.edge_runner import LoadedModel
from engine.errors import (
    CheckpointError,
    EngineError,
    GenerationSuspended,
    InvalidRequest,
)
from engine.forks import with_fork_steps
from engine.leaves import Outcome
from engine.loading import LoadedModels
from engine.memory import WeightPrecision
from engine.pipelines.base import Placement, memory_errors
from engine.plan import plan
from engine.registry import checkpoint_folder, validate_request, weights_fingerprint
from engine.suspending import Redirection, StateFile, Suspension
from engine.terms import known_terms
from engine.types import (
    ENGINE_VERSION,
    GenerationFailure,
    GenerationRequest,
    Progress,
    QualityProfile,
    RenderSettings,
)
from engine.watching import CancelCheck, ProgressCallback, Watch

CalibrationFinder = Callable[[RenderSettings], Calibration | None]


class Engine:
    """Renders requests with models that are loaded on first use.

    One engine belongs to one thread; `torch_threads` of the configuration holds for the process.
    """

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        calibration: Calibration | CalibrationFinder | None = None,
    ) -> None:
        """`calibration` is one, or finds those of the settings that it is asked for.

        By default they are those kept beside the checkpoint. It says where slots fork that carry
        no fork steps yet, what conditions the steps before, and what may be skipped; one of other
        weights or settings says nothing.
        """
        self._config = config or EngineConfig.from_environment()
        self._calibration = self._kept_calibration if calibration is None else calibration
        self._placement = Placement.of(self._config)
        self.cache = SharedCache(limit_bytes=self._config.cache_bytes)
        self.models = LoadedModels(self._config, self._placement, self.cache)
        if self._config.torch_threads is not None:
            torch.set_num_threads(self._config.torch_threads)

    @property
    def device_kind(self) -> str:
        """The device in words that two machines of equal speed share; part of a Calibration."""
        if self._placement.device.type == "cuda":
            return torch.cuda.get_device_name(self._placement.device)
        kind = self._placement.device.type
        return f"{kind} {platform.machine()}, {torch.get_num_threads()} threads"

    def generate(
        self,
        requests: Iterable[GenerationRequest],
        *,
        on_progress: ProgressCallback | None = None,
        should_cancel: CancelCheck | None = None,
        suspension: Suspension | None = None,
    ) -> Iterator[Outcome]:
        """Yield one result or failure per request, as their renders finish; invalid ones first.

        `on_progress` is called after each denoising step. `should_cancel(request_id)` is asked
        before a request starts and between its steps; a cancelled request yields a failure with
        code `cancelled`, and its siblings go on. Requests for the same pixels are rendered once;
        variants of one prompt share steps as far as their profile allows. `suspension` stops the
        whole run between two steps: what has no result yet then fails with code `suspended`.
        """
        accepted: dict[str, GenerationRequest] = {}
        for request in requests:
            try:
                self._accept(request, accepted)
            except EngineError as error:
                yield GenerationFailure.from_error(request.request_id, error)
        watch = Watch(on_progress=on_progress, should_cancel=should_cancel, suspension=suspension)
        calibrations = {
            settings: self._find_calibration(settings)
            for settings in {request.settings for request in accepted.values()}
        }
        planned = plan(
            accepted.values(),
            terms_of=lambda settings: known_terms(settings, calibration=calibrations[settings]),
            max_group=max(1, len(accepted)),
        )
        try:
            for group in planned.groups:
                family = [
                    with_fork_steps(accepted[member.request_id], member.fork_steps)
                    for member in group.members
                ]
                yield from self._render(family, watch, calibrations[family[0].settings])
        except GenerationSuspended as stop:
            watch.suspension.leave()
            watch.fail(accepted.values(), stop)
            yield from watch.take_failures()

    def run_until(
        self,
        request: GenerationRequest,
        *,
        step: int,
        on_progress: ProgressCallback | None = None,
    ) -> StateFile:
        """Run the first steps of a request and give the state that they lead to.

        EngineError where it cannot be rendered, or no state stands after such a step.
        """
        last = request.settings.num_inference_steps - 1
        if not 0 < step <= last:
            raise InvalidRequest("step", f"A state stands after step 1 to {last}, not {step}.")
        done = 0

        def hear(progress: Progress) -> None:
            nonlocal done
            done = progress.step
            if on_progress is not None:
                on_progress(progress)

        suspension = Suspension(lambda: done >= step)
        alone = replace(request, slots=())
        for outcome in self.generate([alone], on_progress=hear, suspension=suspension):
            if isinstance(outcome, GenerationFailure) and suspension.left_open is None:
                raise EngineError(outcome.message)
        if suspension.left_open is None:
            raise InvalidRequest(
                "step", "The step cache of this profile keeps its state to itself."
            )
        return suspension.left_open

    def redirect(
        self,
        state: StateFile,
        request: GenerationRequest,
        *,
        on_progress: ProgressCallback | None = None,
    ) -> Outcome:
        """Render a request from the state of another one, whose prompt held for the steps before.

        With the same prompt the result is that of the uncut run. InvalidRequest where seed, size,
        steps, guidance, model or versions are not those of the state.
        """
        alone = replace(request, slots=())
        redirection = Redirection(state, alone)
        outcome = next(self.generate([alone], on_progress=on_progress, suspension=redirection))
        before = state.request and state.request.prompt
        if isinstance(outcome, GenerationFailure) or request.prompt == before:
            return outcome
        facts = {"from_step": state.last_step, "prompt_before": before}
        changed = {"rendered_as": "redirected", "redirected": facts}
        return replace(outcome, provenance=outcome.provenance | changed)

    def calibrate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        profiles: Sequence[QualityProfile] = (),
    ) -> Iterator[Calibration]:
        """Measure how much variants like these may share: a few dozen probe renders a profile.

        The requests show two or more values of each parameter, best with several prompts and
        seeds: what is found holds for those it was measured with. `profiles` are measured in
        place of their own, by the same exact renders. EngineError where a probe cannot be
        rendered.
        """
        for request in requests:
            validate_request(request, model_dir=self._config.model_dir)
        if len({request.settings for request in requests}) != 1:
            raise InvalidRequest("requests", "A calibration takes requests with equal settings.")
        with memory_errors(self._placement.device):
            runner = self.models.get(requests[0].settings.model_id)
        calibrator = Calibrator(runner.trees, device_kind=self.device_kind)
        for profile in profiles or (requests[0].settings.profile,):
            settings = replace(requests[0].settings, profile=profile)
            yield calibrator.calibrate([replace(each, settings=settings) for each in requests])

    def _find_calibration(self, settings: RenderSettings) -> Calibration | None:
        """The calibration that fits these settings and the weights at hand."""
        asked = self._calibration
        try:
            found = asked(settings) if callable(asked) else asked
            fingerprint = weights_fingerprint(settings.model_id, model_dir=self._config.model_dir)
        except CheckpointError:
            return None  # without whole weights each request fails by itself
        fits = found is not None and found.fits(settings, weights_fingerprint=fingerprint)
        return found if fits else None

    def _kept_calibration(self, settings: RenderSettings) -> Calibration | None:
        return find_calibration(
            checkpoint_folder(settings.model_id, model_dir=self._config.model_dir),
            settings,
            weights_fingerprint=weights_fingerprint(
                settings.model_id, model_dir=self._config.model_dir
            ),
        )

    def _accept(self, request: GenerationRequest, accepted: dict[str, GenerationRequest]) -> None:
        if request.request_id in accepted:
            raise InvalidRequest(
                "request_id", f"The request id {request.request_id!r} was given twice."
            )
        validate_request(request, model_dir=self._config.model_dir)
        accepted[request.request_id] = request

    def _render(
        self, family: list[GenerationRequest], watch: Watch, calibration: Calibration | None
    ) -> Iterator[Outcome]:
        """Render one family; a model that cannot be loaded fails each of its requests."""
        wanted = watch.open_ones(family, step=0)
        yield from watch.take_failures()
        if not wanted:
            return
        try:
            with memory_errors(self._placement.device):
                runner = self.models.get(family[0].settings.model_id)
        except Exception as error:
            watch.fail(wanted, error)
            yield from watch.take_failures()
            return
        facts = self._facts(runner.model, wanted[0].settings.model_id)
        watch.suspension.begin(facts, wanted)
        for outcome in runner.run(wanted, watch, calibration=calibration):
            yield self._signed(outcome, wanted[0], runner.model)

    def _signed(self, outcome: Outcome, request: GenerationRequest, model: LoadedModel) -> Outcome:
        """The outcome with what the engine knows of how it came about, as plain values for JSON."""
        if isinstance(outcome, GenerationFailure):
            return outcome
        facts = self._facts(model, request.settings.model_id) | {
            "profile": str(request.settings.profile),
            "seed": request.seed,
        }
        if model.revision is not None:
            facts["weights_revision"] = model.revision
        memory = model.runner.placement.memory
        provenance = facts | outcome.provenance
        if memory is not None:
            provenance["memory"] = asdict(memory)
            if memory.changes_pixels and provenance["rendered_as"] == QualityProfile.EXACT:
                provenance["rendered_as"] = "exact, in less memory"
        return replace(outcome, provenance=provenance)

    def _dtype(self, model: LoadedModel) -> str:
        """The precision of computation, and that of weights where it is another."""
        dtype = str(self._placement.dtype).removeprefix("torch.")
        memory = model.runner.placement.memory
        if memory is None or memory.weights is WeightPrecision.FULL:
            return dtype
        return f"{dtype}, {memory.weights} weights"

    def _facts(self, model: LoadedModel, model_id: str) -> dict[str, Any]:
        """What decides the pixels for everything that this engine renders with a model."""
        return {
            "engine_version": ENGINE_VERSION,
            "model_id": model_id,
            "weights_fingerprint": model.fingerprint,
            "solver": model.runner.solver,
            "device": self.device_kind,
            "dtype": self._dtype(model),
            "torch": torch.__version__,
            "diffusers": diffusers.__version__,
        }
