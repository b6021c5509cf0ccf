"""The step caches of diffusers and cache-dit, each in a few settings, siblings batched."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from itertools import product
from typing import Any

import diffusers
import torch

from bench.campaign.plain import PlainDiffusers, Rendered, Side
from engine.registry import default_settings, get_model
from engine.types import GenerationRequest

Config = Callable[[], Any]
# The sweep of each peer: mild settings first.
FIRST_BLOCK = (0.05, 0.1, 0.15, 0.2)
MAG = (0.06, 0.12, 0.24)
TAYLOR = (2, 3, 4)
SEA = (0.1, 0.25)
ATTENTION = (2, 4)
CACHE_DIT = (0.08, 0.15, 0.3)  # as it is, and with its TaylorSeer calibrator
FEWER_STEPS = (20, 15, 10)


class Peers:
    """Makes the sides; what a peer measures of the model first is not in its time."""

    def __init__(self, plain: PlainDiffusers) -> None:
        self._plain = plain
        self._mag_ratios: list[float] = []

    def sides(self) -> Iterator[Side]:
        """For each peer its settings."""
        for steps in FEWER_STEPS:
            yield Side(
                name=f"plain batched, {steps} steps",
                peer="fewer steps",
                render=self._plain.batched(steps=steps),
            )
        for peer, configs in self._settings().items():
            for label, config in configs.items():
                yield Side(
                    name=f"{peer} {label}, batched",
                    peer=peer,
                    render=self._plain.batched(config=config),
                    warm_up=self._measure_mag_ratios if peer == "MagCache" else None,
                )
        if importlib.util.find_spec("cache_dit") is not None:
            for threshold, is_taylor in product(CACHE_DIT, (False, True)):
                yield Side(
                    name=f"cache-dit DBCache{'+TaylorSeer' * is_taylor} {threshold}, batched",
                    peer="cache-dit",
                    render=self._with_cache_dit(threshold, is_taylor=is_taylor),
                )

    def _settings(self) -> Mapping[str, Mapping[str, Config]]:
        last_step = default_settings("adloom-tiny").num_inference_steps - 1
        settings: dict[str, dict[str, Config]] = {
            "FirstBlockCache": {
                str(value): partial(diffusers.FirstBlockCacheConfig, threshold=value)
                for value in FIRST_BLOCK
            },
            "MagCache": {str(value): partial(self._mag_config, value) for value in MAG},
            "TaylorSeer lite": {
                f"every {value}": partial(
                    diffusers.TaylorSeerCacheConfig,
                    cache_interval=value,
                    disable_cache_before_step=6,
                    disable_cache_after_step=last_step,
                    taylor_factors_dtype=torch.float32,
                    use_lite_mode=True,
                )
                for value in TAYLOR
            },
            "SeaCache": {
                str(value): partial(diffusers.SeaCacheConfig, threshold=value) for value in SEA
            },
            "FasterCache": {
                str(value): partial(
                    diffusers.FasterCacheConfig,
                    spatial_attention_block_skip_range=value,
                    current_timestep_callback=self._timestep,
                    attention_weight_callback=lambda _: 0.5,
                )
                for value in ATTENTION
            },
            "PyramidAttentionBroadcast": {
                str(value): partial(
                    diffusers.PyramidAttentionBroadcastConfig,
                    spatial_attention_block_skip_range=value,
                    cross_attention_block_skip_range=value + 1,
                    current_timestep_callback=self._timestep,
                )
                for value in ATTENTION
            },
        }
        return settings

    def _timestep(self) -> int:
        return int(self._plain.pipeline.current_timestep)

    def _measure_mag_ratios(self) -> None:
        """Ratios of one run of this model, by MagCache's own calibration."""
        if self._mag_ratios:
            return
        settings = default_settings("adloom-tiny")
        pipeline, said = self._plain.pipeline, StringIO()
        pipeline.transformer.enable_cache(
            diffusers.MagCacheConfig(
                calibrate=True, num_inference_steps=settings.num_inference_steps
            )
        )
        try:
            with redirect_stdout(said):
                pipeline(
                    "a red sneaker on a beach",
                    width=settings.width,
                    height=settings.height,
                    num_frames=settings.num_frames,
                    num_inference_steps=settings.num_inference_steps,
                    guidance_scale=settings.guidance_scale,
                    max_sequence_length=get_model("adloom-tiny").max_sequence_length,
                    output_type="latent",
                )
        finally:
            pipeline.transformer.disable_cache()
        # It prints its ratios once for each branch; the conditional one comes first.
        line = next(line for line in said.getvalue().splitlines() if line.startswith("[1"))
        self._mag_ratios = [float(each) for each in line.strip("[]").split(",")]

    def _mag_config(self, threshold: float) -> Any:
        return diffusers.MagCacheConfig(
            threshold=threshold,
            num_inference_steps=len(self._mag_ratios),
            mag_ratios=self._mag_ratios,
        )

    def _with_cache_dit(
        self, threshold: float, *, is_taylor: bool
    ) -> Callable[[list[GenerationRequest]], Rendered]:
        def render(requests: list[GenerationRequest]) -> Rendered:
            # An extra that replaces parts of diffusers when it is imported, so only now.
            cache_dit = importlib.import_module("cache_dit")
            cache_dit.enable_cache(
                self._plain.pipeline,
                cache_config=cache_dit.DBCacheConfig(
                    Fn_compute_blocks=1,
                    Bn_compute_blocks=0,
                    max_warmup_steps=4,
                    residual_diff_threshold=threshold,
                ),
                calibrator_config=cache_dit.TaylorSeerCalibratorConfig() if is_taylor else None,
            )
            try:
                return self._plain.batched()(requests)
            finally:
                cache_dit.disable_cache(self._plain.pipeline)

        return render
