"""Runs edges of a denoising tree as rows of one batch, and decodes what stands at its leaves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.branches import Account, Branch, full_forwards, row_parents
from engine.caching.shared import SharedCache
from engine.caching.steps import SegmentPlace, can_pause, spared_forwards
from engine.coupling import FamilyControl
from engine.edge_keys import EdgeKeys
from engine.errors import EngineError
from engine.pipelines.base import (
    Conditioning,
    Embeddings,
    ModelRunner,
    mean_embeddings,
    stack_embeddings,
)
from engine.registry import reads_negative_prompt
from engine.segments import Steer, initial_state, run_segment
from engine.states import LatentState, draft_end, stack_states
from engine.types import (
    GenerationRequest,
    GenerationResult,
    Lora,
    QualityProfile,
    RenderSettings,
    StageSeconds,
    StepCachePolicy,
)
from engine.units import decode_units, forward_units
from engine.watching import Watch


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model in memory, and the fingerprint of the weights it was loaded from.

    `revision` is the commit of the hub that they were pulled at, if they were.
    """

    runner: ModelRunner
    fingerprint: str
    revision: str | None = None


@dataclass(frozen=True, kw_only=True)
class EdgeRunner:
    """Runs the edges of one family's tree.

    `key` is the family's affinity key; `step_cache` and `control` are for profiles other than
    `exact`.
    """

    model: LoadedModel
    cache: SharedCache
    key: str
    settings: RenderSettings
    loras: tuple[Lora, ...]
    step_cache: StepCachePolicy | None
    control: FamilyControl | None

    @property
    def is_fast(self) -> bool:
        """Whether the model's faster way is taken, which `exact` never is."""
        return self.settings.profile is not QualityProfile.EXACT and self.model.runner.is_fast

    @property
    def policy(self) -> StepCachePolicy | None:
        return None if self.settings.profile is QualityProfile.EXACT else self.step_cache

    @property
    def keys(self) -> EdgeKeys:
        """How the states of this tree are named where they are stored."""
        return EdgeKeys(family=self.key, policy=self.policy, is_fast=self.is_fast)

    @property
    def can_pause(self) -> bool:
        """Whether a state in the midst of an edge holds all that the steps after it need."""
        return can_pause(self.policy)

    def recall(self, branch: Branch) -> bool:
        """Take the state at the end of an edge from an earlier run or, of a shared one, the cache.

        False where it is neither here nor there.
        """
        if branch.pause is not None and branch.pause.step == branch.edge.stop:
            branch.stand_at(branch.pause.to(self.model.runner.placement.device))
            return True
        if branch.is_leaf or branch.pause is not None:
            return False
        branch.state = self.cache.get("states", self._state_key(branch))
        if branch.state is not None:
            branch.saved["state_cache"] = full_forwards(self.settings, branch.edge.num_steps)
        return branch.state is not None

    def denoise(self, batch: Sequence[Branch], watch: Watch) -> None:
        """Run the edges as the rows of one batch; no states when nobody wants them any more.

        Where the run is suspended they stand at the step in hand, or where they stood if their
        step cache cannot pause.
        """
        start, stop = batch[0].start, batch[0].edge.stop
        done = start
        self.model.runner.use_loras(batch[0].requests[0].loras)
        conditioning = self._condition(batch)
        started = self.now()
        call = self.model.runner.prepare(batch[0].requests[0], conditioning)
        state, generator = self._begin(batch, conditioning)
        place = SegmentPlace(
            start=start,
            stop=stop,
            num_steps=self.settings.num_inference_steps,
            row_parents=row_parents(batch),
        )
        prediction: torch.Tensor | None = None

        def on_step_end(
            pipeline: Any, index: int, timestep: torch.Tensor, tensors: dict[str, torch.Tensor]
        ) -> dict[str, torch.Tensor]:
            nonlocal done, prediction
            done = start + index + 1
            if done == self.settings.draft_step:
                prediction = pipeline.scheduler.clean(index)
            wanted = [watch.after_step(branch.requests, done) for branch in batch]
            pipeline._interrupt = not any(wanted) or watch.suspension.is_asked
            return tensors

        with (
            self.model.runner.fast_forwards() if self.is_fast else nullcontext(),
            spared_forwards(
                call.pipeline, place, policy=self.policy, memory=state.memory if state else {}
            ) as tally,
        ):
            end = run_segment(
                call.pipeline,
                stop=stop,
                state=state,
                generator=generator,
                first_step=call.first_step,
                steer=self._steer(batch),
                callback_on_step_end=on_step_end,
                **call.arguments,
            )
            is_interrupted = call.pipeline.interrupt
        if is_interrupted and not watch.suspension.is_asked:
            return
        if done < stop:
            if not self.can_pause:
                return
            end = replace(end, step=done, memory=tally.memory)
        elif stop == self.settings.draft_step:
            end = draft_end(replace(end, memory=tally.memory), prediction)
        seconds = self.now() - started
        for row, branch in enumerate(batch):
            branch.note(seconds=seconds, tally=tally, batch_size=len(batch))
            branch.stand_at(end if len(batch) == 1 else end.row(row))
            if branch.state is not None and not branch.is_leaf:
                key = self._state_key(branch)
                self.cache.put("states", key, branch.state, size_bytes=branch.state.size_bytes)

    def decode_together(self, leaves: Sequence[Branch]) -> None:
        """Decode leaves in one go where that is faster; `decode` does what could not be done."""
        if not self.is_fast or len(leaves) < 2:
            return
        started = self.now()
        latents = torch.cat([leaf.state.shown for leaf in leaves if leaf.state is not None])
        try:
            clips = self.model.runner.decode_fast(latents)
        except (EngineError, RuntimeError, MemoryError):
            # One of them may be the cause: each is decoded alone, and fails or succeeds alone.
            return
        seconds = (self.now() - started) / len(leaves)
        for leaf, frames in zip(leaves, clips, strict=True):
            leaf.frames, leaf.decode_seconds = frames, seconds

    def decode(self, leaf: Branch, request: GenerationRequest) -> GenerationResult:
        """The frames at the end of a leaf, with what they took."""
        assert leaf.state is not None
        frames, leaf.frames = leaf.frames, None
        if frames is None:
            frames = self._decode_alone(leaf, request)
        started = self.now()
        # A draft is silent: what it predicts is the picture.
        audio = None
        if request.settings.draft_step is None:
            audio = self.model.runner.decode_audio(leaf.state.latents, request)
        leaf.decode_seconds += self.now() - started
        account = Account.of(leaf)
        settings = request.settings
        is_exact = account.is_exact and not self.is_fast and not leaf.num_steered
        return GenerationResult(
            request_id=request.request_id,
            frames=frames,
            audio=audio,
            fps=settings.fps,
            seconds=StageSeconds(
                text=account.text_seconds,
                denoise=account.denoise_seconds,
                decode=leaf.decode_seconds,
            ),
            forwards_computed=account.computed,
            work_units=account.priced * forward_units(settings) + decode_units(settings),
            provenance={
                "rendered_as": str(QualityProfile.EXACT if is_exact else settings.profile),
                "edges": account.edges,
                "forwards": {"computed": round(account.computed, 4), "saved": account.saved},
                "steps_beside_control": leaf.num_steered,
            },
        )

    def _decode_alone(self, leaf: Branch, request: GenerationRequest) -> NDArray[np.uint8]:
        assert leaf.state is not None
        started = self.now()
        runner, latents = self.model.runner, leaf.state.shown
        frames = runner.decode_fast(latents)[0] if self.is_fast else runner.decode(latents, request)
        leaf.decode_seconds = self.now() - started
        return frames

    def now(self) -> float:
        # A GPU works behind the program's back: its queue must be empty for a stage to be over.
        if self.model.runner.placement.device.type == "cuda":
            torch.cuda.synchronize(self.model.runner.placement.device)
        return time.perf_counter()

    def _condition(self, batch: Sequence[Branch]) -> Conditioning:
        """The embeddings of all rows; an edge with several texts has their mean."""
        started = self.now()
        rows = [mean_embeddings([self._embed(text) for text in each.texts]) for each in batch]
        negative: Embeddings | None = None
        if reads_negative_prompt(self.settings):
            negative = self._embed(batch[0].requests[0].negative_prompt)
        for branch in batch:
            branch.text_seconds += (self.now() - started) / len(batch)
        if len(batch) == 1:
            return Conditioning(positive=rows[0], negative=negative)
        # All rows are views of one, so what is computed of it alone is computed once.
        negatives = negative and {
            name: row.expand(len(batch), *row.shape[1:]) for name, row in negative.items()
        }
        return Conditioning(positive=stack_embeddings(rows), negative=negatives)

    def _embed(self, text: str) -> Embeddings:
        runner = self.model.runner
        key = (self.model.fingerprint, runner.placement.dtype, self.loras, text)
        embeds: Embeddings | None = self.cache.get("texts", key)
        if embeds is None:
            embeds = runner.encode(text)
            size_bytes = sum(rows.nbytes for rows in embeds.values())
            self.cache.put("texts", key, embeds, size_bytes=size_bytes)
        return embeds

    def _steer(self, batch: Sequence[Branch]) -> Steer | None:
        if self.control is None or self.settings.profile is QualityProfile.EXACT:
            return None
        return self.control.steer(batch, num_steps=self.settings.num_inference_steps)

    def _begin(
        self, batch: Sequence[Branch], conditioning: Conditioning
    ) -> tuple[LatentState | None, torch.Generator | None]:
        """Where the rows start: where they stood, at their parents' states, or at the seed's noise.

        The noise comes from a CPU generator, so a seed means the same on every device.
        """
        device = self.model.runner.placement.device
        paused = [branch.pause.to(device) for branch in batch if branch.pause is not None]
        if paused:
            state = stack_states(paused)
            return state, None if state.rng is None else torch.Generator("cpu")
        states = [branch.parent.state for branch in batch if branch.parent is not None]
        if states:
            state = stack_states([state for state in states if state is not None])
            # Solvers that draw noise go on drawing where the shared steps ended.
            return state, None if state.rng is None else torch.Generator("cpu")
        request = batch[0].requests[0]
        generator = torch.Generator("cpu").manual_seed(request.seed)
        if len(batch) == 1:
            return None, generator
        alone = self.model.runner.prepare(request, conditioning.row(0))
        noise = initial_state(
            alone.pipeline, generator=generator, first_step=alone.first_step, **alone.arguments
        )
        return stack_states([noise] * len(batch)), None

    def _state_key(self, branch: Branch) -> tuple[Any, ...]:
        runner = self.model.runner
        return (
            self.model.fingerprint,
            runner.placement.dtype,
            runner.solver,
            self.key,
            self.policy,
            self.is_fast,
            branch.key,
        )
