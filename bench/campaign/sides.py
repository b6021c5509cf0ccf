"""The ways to render a family: plain diffusers, its step caches, cache-dit, and Adloom."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from typing import Any

import diffusers
import numpy as np
import torch
from diffusers import WanPipeline
from numpy.typing import NDArray

from bench.campaign.families import MODEL_ID
from engine.calibration import Calibration, read_calibrations
from engine.config import EngineConfig
from engine.engine import Engine
from engine.registry import checkpoint_folder, get_model
from engine.types import (
    GenerationRequest,
    GenerationResult,
    QualityProfile,
    RenderSettings,
)

BATCH = 8
Clips = list[NDArray[np.uint8]]


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """Clips in the order of the requests; `forwards` counts rows through all blocks."""

    clips: Clips
    forwards: float


@dataclass(frozen=True, kw_only=True)
class Side:
    """A way to render, with one setting; `peer` groups the settings of one method."""

    name: str
    peer: str
    render: Callable[[list[GenerationRequest]], Rendered]
    profile: QualityProfile = QualityProfile.EXACT


class Bench:
    """The loaded models, and the sides that render with them."""

    def __init__(self) -> None:
        folder = checkpoint_folder(MODEL_ID)
        self.pipeline = WanPipeline.from_pretrained(folder, local_files_only=True)
        self.pipeline.set_progress_bar_config(disable=True)
        self._config = EngineConfig.from_environment()
        self._calibrations = read_calibrations(folder)
        self._engines: dict[int, Engine] = {}
        self._mag_ratios: list[float] = []

    def sides(self) -> list[Side]:
        """All sides, the baseline first."""
        return [
            Side(name="plain loop", peer="plain loop", render=self.loop),
            Side(name="plain batched", peer="plain batched", render=self._batched()),
            *(
                Side(
                    name=f"plain batched, {steps} steps",
                    peer="fewer steps",
                    render=self._batched(steps=steps),
                )
                for steps in (10, 15, 20)
            ),
            *self._diffusers_caches(),
            *self._cache_dit(),
            *self._adloom(),
        ]

    def loop(self, requests: list[GenerationRequest]) -> Rendered:
        """One pipeline call for each variant."""
        rendered = [self._call([request]) for request in requests]
        return Rendered(
            clips=[clip for each in rendered for clip in each.clips],
            forwards=sum(each.forwards for each in rendered),
        )

    def _call(self, requests: Sequence[GenerationRequest], *, steps: int | None = None) -> Rendered:
        settings = requests[0].settings
        with _counted(self.pipeline.transformer) as counter:
            video = self.pipeline(
                prompt=[request.prompt for request in requests],
                negative_prompt=[request.negative_prompt for request in requests],
                width=settings.width,
                height=settings.height,
                num_frames=settings.num_frames,
                num_inference_steps=steps or settings.num_inference_steps,
                guidance_scale=settings.guidance_scale,
                max_sequence_length=get_model(MODEL_ID).max_sequence_length,
                generator=[torch.Generator("cpu").manual_seed(r.seed) for r in requests],
                output_type="np",
            ).frames
        clips = [(clip * 255).round().astype(np.uint8) for clip in video]
        return Rendered(clips=clips, forwards=counter[0])

    def _batched(
        self, *, steps: int | None = None, config: Callable[[], Any] | None = None
    ) -> Callable[[list[GenerationRequest]], Rendered]:
        """Siblings in batches, as many at once as Adloom takes, with a step cache of diffusers."""

        def render(requests: list[GenerationRequest]) -> Rendered:
            transformer = self.pipeline.transformer
            clips: Clips = []
            forwards = 0.0
            for start in range(0, len(requests), BATCH):
                # A step cache's state belongs to one run; it is set up anew, as its users do.
                if config is not None:
                    transformer.enable_cache(config())
                try:
                    rendered = self._call(requests[start : start + BATCH], steps=steps)
                finally:
                    if config is not None:
                        transformer.disable_cache()
                clips += rendered.clips
                forwards += rendered.forwards
            return Rendered(clips=clips, forwards=forwards)

        return render

    def _diffusers_caches(self) -> Iterator[Side]:
        def timestep() -> int:
            return int(self.pipeline.current_timestep)

        settings: dict[str, dict[str, Callable[[], Any]]] = {
            "FirstBlockCache": {
                str(value): partial(diffusers.FirstBlockCacheConfig, threshold=value)
                for value in (0.05, 0.1, 0.15, 0.2)
            },
            "MagCache": {
                str(value): partial(self._mag_config, value) for value in (0.06, 0.12, 0.24)
            },
            "TaylorSeer lite": {
                f"every {value}": partial(
                    diffusers.TaylorSeerCacheConfig,
                    cache_interval=value,
                    disable_cache_before_step=6,
                    disable_cache_after_step=29,
                    taylor_factors_dtype=torch.float32,
                    use_lite_mode=True,
                )
                for value in (2, 3, 4)
            },
            "SeaCache": {
                str(value): partial(diffusers.SeaCacheConfig, threshold=value)
                for value in (0.1, 0.25)
            },
            "FasterCache": {
                "2": partial(
                    diffusers.FasterCacheConfig,
                    spatial_attention_block_skip_range=2,
                    current_timestep_callback=timestep,
                    attention_weight_callback=lambda _: 0.5,
                )
            },
            "PyramidAttentionBroadcast": {
                "2": partial(
                    diffusers.PyramidAttentionBroadcastConfig,
                    spatial_attention_block_skip_range=2,
                    cross_attention_block_skip_range=3,
                    current_timestep_callback=timestep,
                )
            },
        }
        for peer, configs in settings.items():
            for label, config in configs.items():
                name = f"{peer} {label}, batched"
                yield Side(name=name, peer=peer, render=self._batched(config=config))

    def _mag_config(self, threshold: float) -> Any:
        """MagCache with ratios of one run of this model, measured by its own calibration."""
        steps = get_model(MODEL_ID).default_steps
        if not self._mag_ratios:
            transformer, said = self.pipeline.transformer, StringIO()
            transformer.enable_cache(
                diffusers.MagCacheConfig(calibrate=True, num_inference_steps=steps)
            )
            try:
                with redirect_stdout(said):
                    self.pipeline("a red sneaker on a beach", num_inference_steps=steps, **_SMALL)
            finally:
                transformer.disable_cache()
            # It prints its ratios once for each branch; the conditional one comes first.
            line = next(line for line in said.getvalue().splitlines() if line.startswith("[1"))
            self._mag_ratios = [float(each) for each in line.strip("[]").split(",")]
        return diffusers.MagCacheConfig(
            threshold=threshold, num_inference_steps=steps, mag_ratios=self._mag_ratios
        )

    def _cache_dit(self) -> Iterator[Side]:
        if importlib.util.find_spec("cache_dit") is None:
            return
        for threshold in (0.08, 0.15, 0.3):
            yield Side(
                name=f"cache-dit DBCache {threshold}, batched",
                peer="cache-dit",
                render=self._with_cache_dit(threshold),
            )

    def _with_cache_dit(self, threshold: float) -> Callable[[list[GenerationRequest]], Rendered]:
        def render(requests: list[GenerationRequest]) -> Rendered:
            # An extra that replaces parts of diffusers when it is imported, so only now.
            cache_dit = importlib.import_module("cache_dit")
            batched = self._batched()
            cache_dit.enable_cache(
                self.pipeline,
                cache_config=cache_dit.DBCacheConfig(
                    Fn_compute_blocks=1,
                    Bn_compute_blocks=0,
                    max_warmup_steps=4,
                    residual_diff_threshold=threshold,
                ),
            )
            try:
                return batched(requests)
            finally:
                cache_dit.disable_cache(self.pipeline)

        return render

    def _adloom(self) -> Iterator[Side]:
        for profile in QualityProfile:
            guards = (0,) if profile is QualityProfile.EXACT else (0, self._config.guard_every)
            for every in guards:
                yield Side(
                    name=f"Adloom {profile}" + (", guard's renders included" if every else ""),
                    peer=f"Adloom {profile}",
                    render=self._with_adloom(every),
                    profile=profile,
                )

    def _with_adloom(self, guard_every: int) -> Callable[[list[GenerationRequest]], Rendered]:
        def render(requests: list[GenerationRequest]) -> Rendered:
            if guard_every not in self._engines:
                # Nothing is kept from run to run: each pays for its texts and stems.
                config = replace(self._config, guard_every=guard_every)
                self._engines[guard_every] = Engine(config, calibration=self._calibration)
            engine = self._engines[guard_every]
            engine.cache.clear()
            outcomes = {outcome.request_id: outcome for outcome in engine.generate(requests)}
            results = [_result(outcomes[request.request_id]) for request in requests]
            return Rendered(
                clips=[result.frames for result in results],
                forwards=sum(result.forwards_computed for result in results),
            )

        return render

    def _calibration(self, settings: RenderSettings) -> Calibration | None:
        return next((each for each in self._calibrations if each.fits(settings)), None)


_SMALL: dict[str, Any] = {
    "width": 224,
    "height": 128,
    "num_frames": 17,
    "guidance_scale": 4.0,
    "max_sequence_length": 64,
    "output_type": "latent",
}


def _result(outcome: Any) -> GenerationResult:
    if not isinstance(outcome, GenerationResult):
        raise RuntimeError(f"variant {outcome.request_id} failed: {outcome.message}")
    return outcome


@contextmanager
def _counted(transformer: Any) -> Iterator[list[float]]:
    """Count rows that reach the last block's feed-forward part."""
    counter = [0.0]

    def note(_: Any, args: tuple[torch.Tensor, ...]) -> None:
        counter[0] += args[0].shape[0]

    handle = transformer.blocks[-1].ffn.register_forward_pre_hook(note)
    try:
        yield counter
    finally:
        handle.remove()
