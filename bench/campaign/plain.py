"""Plain diffusers: a loop over the variants, and siblings in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from diffusers import WanPipeline
from numpy.typing import NDArray

from bench.campaign.families import MODEL_ID
from bench.campaign.stages import STAGES, timed_stages
from engine.registry import checkpoint_folder, get_model
from engine.types import GenerationRequest, QualityProfile

# As many siblings at once as Adloom takes.
BATCH = 8
# Ends the names of sides whose seconds hold the guard's exact renders as well.
GUARD_INCLUDED = ", guard's renders included"
Clips = list[NDArray[np.uint8]]


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """Clips in the order of the requests; `forwards` counts rows through all blocks.

    `stages` are wall seconds of all requests by stage.
    """

    clips: Clips
    forwards: float
    stages: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Side:
    """A way to render, with one setting; `peer` groups the settings of one method.

    `warm_up` measures what the method needs to know of the model.
    """

    name: str
    peer: str
    render: Callable[[list[GenerationRequest]], Rendered]
    profile: QualityProfile = QualityProfile.EXACT
    warm_up: Callable[[], None] | None = None


class PlainDiffusers:
    """The model in a pipeline of diffusers."""

    def __init__(self) -> None:
        folder = checkpoint_folder(MODEL_ID)
        self.pipeline = WanPipeline.from_pretrained(folder, local_files_only=True)
        self.pipeline.set_progress_bar_config(disable=True)

    def loop(self, requests: list[GenerationRequest]) -> Rendered:
        """One pipeline call for each variant."""
        return _joined([self._call([request]) for request in requests])

    def _call(self, requests: Sequence[GenerationRequest], *, steps: int | None = None) -> Rendered:
        settings = requests[0].settings
        with (
            _counted(self.pipeline.transformer) as counter,
            timed_stages(self.pipeline) as stages,
        ):
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
        return Rendered(clips=clips, forwards=counter[0], stages=stages)

    def batched(
        self, *, steps: int | None = None, config: Callable[[], Any] | None = None
    ) -> Callable[[list[GenerationRequest]], Rendered]:
        """Siblings in batches, as many at once as Adloom takes, with a step cache of diffusers."""

        def render(requests: list[GenerationRequest]) -> Rendered:
            transformer = self.pipeline.transformer
            parts: list[Rendered] = []
            for start in range(0, len(requests), BATCH):
                # A step cache's state belongs to one run; it is set up anew, as its users do.
                if config is not None:
                    transformer.enable_cache(config())
                try:
                    parts.append(self._call(requests[start : start + BATCH], steps=steps))
                finally:
                    if config is not None:
                        transformer.disable_cache()
            return _joined(parts)

        return render


def _joined(parts: Sequence[Rendered]) -> Rendered:
    return Rendered(
        clips=[clip for each in parts for clip in each.clips],
        forwards=sum(each.forwards for each in parts),
        stages={name: sum(each.stages[name] for each in parts) for name in STAGES},
    )


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
