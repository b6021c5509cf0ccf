"""`Engine.generate`: requests in, frames out, one by one, each failing or cancelled alone."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import diffusers
import torch

from engine.config import EngineConfig
from engine.errors import ConfigError, EngineError, GenerationCancelled, InvalidRequest, OutOfMemory
from engine.pipelines.base import ModelRunner, Placement, denoise, resolve
from engine.plan import plan
from engine.registry import checkpoint_folder, get_model, validate_request, weights_fingerprint
from engine.types import (
    ENGINE_VERSION,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Progress,
    QualityProfile,
    StageSeconds,
)

logger = logging.getLogger(__name__)

ProgressCallback = Callable[[Progress], None]
CancelCheck = Callable[[str], bool]
Outcome = GenerationResult | GenerationFailure


@dataclass(frozen=True, kw_only=True)
class _LoadedModel:
    runner: ModelRunner
    fingerprint: str


class Engine:
    """Renders requests with models that are loaded once, on first use.

    One engine belongs to one thread; `torch_threads` of the configuration holds for the process.
    """

    def __init__(self, config: EngineConfig | None = None) -> None:
        self._config = config or EngineConfig.from_environment()
        self._placement = _placement(self._config)
        self._models: dict[str, _LoadedModel] = {}
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
    ) -> Iterator[Outcome]:
        """Yield one result or failure per request, in the order of the plan; invalid ones first.

        `on_progress` is called after each denoising step. `should_cancel(request_id)` is asked
        before a request starts and between its steps; a cancelled request yields a failure with
        code `cancelled`. Requests for the same pixels are rendered once.
        """
        accepted: dict[str, GenerationRequest] = {}
        for request in requests:
            try:
                self._accept(request, accepted)
            except EngineError as error:
                yield GenerationFailure.from_error(request.request_id, error)
        watch = _Watch(on_progress=on_progress, should_cancel=should_cancel)
        planned = plan(accepted.values(), max_group=max(1, len(accepted)))
        for group in planned.groups:
            # The last finished render of the group, which the next request may ask for again.
            last: tuple[str, GenerationResult] | None = None
            for member in group.members:
                request = accepted[member.request_id]
                if last is not None and last[0] == request.prompt:
                    yield _reuse(last[1], request)
                    continue
                outcome = self._outcome(request, watch)
                if isinstance(outcome, GenerationResult):
                    last = (request.prompt, outcome)
                yield outcome

    def _accept(self, request: GenerationRequest, accepted: dict[str, GenerationRequest]) -> None:
        if request.request_id in accepted:
            raise InvalidRequest(
                "request_id", f"The request id {request.request_id!r} was given twice."
            )
        validate_request(request, model_dir=self._config.model_dir)
        accepted[request.request_id] = request

    def _outcome(self, request: GenerationRequest, watch: _Watch) -> Outcome:
        """Render one request; whatever goes wrong is this request's failure alone."""
        try:
            with _memory_errors(self._placement.device):
                return self._render(request, watch)
        except EngineError as error:
            return GenerationFailure.from_error(request.request_id, error)
        except Exception as error:
            logger.exception("request %s failed", request.request_id)
            return GenerationFailure(
                request_id=request.request_id,
                code="render_error",
                message=f"Rendering failed: {type(error).__name__}: {error}",
                is_retryable=True,
            )

    def _render(self, request: GenerationRequest, watch: _Watch) -> GenerationResult:
        watch.refuse_cancelled(request)
        model = self._model(request.settings.model_id)
        runner = model.runner
        start = self._now()
        call = runner.prepare(request, runner.encode(request))
        encoded = self._now()
        latents = denoise(call, request, lambda step: watch.after_step(request, step))
        denoised = self._now()
        frames = runner.decode(latents)
        decoded = self._now()
        settings = request.settings
        return GenerationResult(
            request_id=request.request_id,
            frames=frames,
            fps=settings.fps,
            seconds=StageSeconds(
                text=encoded - start, denoise=denoised - encoded, decode=decoded - denoised
            ),
            forwards_computed=settings.num_inference_steps * settings.forwards_per_step,
            provenance=self._provenance(request, model),
        )

    def _model(self, model_id: str) -> _LoadedModel:
        if model_id not in self._models:
            spec = get_model(model_id)
            folder = checkpoint_folder(model_id, model_dir=self._config.model_dir)
            runner_class: type[ModelRunner] = resolve(spec.runner)
            self._models[model_id] = _LoadedModel(
                runner=runner_class.load(spec, folder, self._placement),
                fingerprint=weights_fingerprint(model_id, model_dir=self._config.model_dir),
            )
        return self._models[model_id]

    def _now(self) -> float:
        # A GPU works behind the program's back: its queue must be empty for a stage to be over.
        if self._placement.device.type == "cuda":
            torch.cuda.synchronize(self._placement.device)
        return time.perf_counter()

    def _provenance(self, request: GenerationRequest, model: _LoadedModel) -> dict[str, Any]:
        """How the frames came about, as plain values for JSON."""
        return {
            "engine_version": ENGINE_VERSION,
            "model_id": request.settings.model_id,
            "weights_fingerprint": model.fingerprint,
            "profile": str(request.settings.profile),
            "rendered_as": str(QualityProfile.EXACT),
            "solver": model.runner.solver,
            "seed": request.seed,
            "device": self.device_kind,
            "dtype": str(self._placement.dtype).removeprefix("torch."),
            "torch": torch.__version__,
            "diffusers": diffusers.__version__,
        }


@dataclass(frozen=True, kw_only=True)
class _Watch:
    """The caller's two callbacks, asked between steps."""

    on_progress: ProgressCallback | None
    should_cancel: CancelCheck | None

    def refuse_cancelled(self, request: GenerationRequest) -> None:
        if self.should_cancel is not None and self.should_cancel(request.request_id):
            raise GenerationCancelled(request.request_id, 0)

    def after_step(self, request: GenerationRequest, step: int) -> bool:
        """Report the step; True when the caller wants to stop."""
        if self.on_progress is not None:
            self.on_progress(
                Progress(
                    request_id=request.request_id,
                    step=step,
                    num_steps=request.settings.num_inference_steps,
                )
            )
        return self.should_cancel is not None and self.should_cancel(request.request_id)


def _reuse(result: GenerationResult, request: GenerationRequest) -> GenerationResult:
    """The same frames for another request that asks for the same pixels."""
    return replace(
        result,
        request_id=request.request_id,
        fps=request.settings.fps,
        seconds=StageSeconds(),
        forwards_computed=0,
        provenance={**result.provenance, "reused_from": result.request_id},
    )


def _placement(config: EngineConfig) -> Placement:
    """Resolve `auto` and refuse a device that this machine does not have."""
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError("ADLOOM_DEVICE", f"{name!r} cannot be used here: {reason}") from None
    dtype = config.dtype
    if dtype == "auto":
        dtype = "float32" if device.type == "cpu" else "bfloat16"
    return Placement(device=device, dtype=getattr(torch, dtype))


@contextmanager
def _memory_errors(device: torch.device) -> Iterator[None]:
    """Turn each library's way to say "no memory" into OutOfMemory."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfMemory(str(device), str(error).partition("\n")[0]) from error
    except RuntimeError as error:
        # torch's CPU allocator raises a plain RuntimeError; its name is in the message.
        if "DefaultCPUAllocator" not in str(error):
            raise
        raise OutOfMemory(str(device), str(error).partition("\n")[0]) from error
