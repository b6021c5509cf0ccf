"""Training of the transformer on cached latents: flow matching for video, first frame and image."""

import math
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engine.tiny import vocabulary
from engine.tiny.captions import caption, phrase
from engine.tiny.latents import LatentCache
from engine.tiny.muon import Muon
from engine.tiny.runs import Average, RunFolder, Timer
from engine.tiny.sampling import sample_sheet
from engine.tiny.text import load_text, tokenise
from engine.tiny.transformer import TrainingPass, build_transformer, text_inputs
from engine.tiny.widening import widen_state, width_of

LOG_EVERY = 50
VALIDATE_EVERY = 1000
PROMPT_LENGTHS = (64, 128, 226, 512)  # values of max_sequence_length people use


@dataclass(frozen=True, slots=True)
class TransformerPlan:
    """How the transformer is trained; the defaults are what the shipped weights were trained with.

    Task shares add up to one: text to video, first frame to video, text to image.
    """

    batch: int = 32
    image_batch: int = 96
    shares: tuple[float, float, float] = (0.55, 0.25, 0.20)
    muon_lr: float = 3e-3
    adam_lr: float = 1.2e-3
    warm_up_steps: int = 100
    decay_from_step: int = 8000  # afterwards the rates fall as one over the root of the step
    caption_dropout: float = 0.10
    average_decay: float = 0.999
    shift: float = 2.0
    compiled: bool = True
    steps: int | None = None  # None: until stopped
    cool_down_average_decay: float = 0.99
    cool_from: float = 1.0  # share of the rates that a cool-down begins with
    # Clips that show one of these values are drawn twice as often, those of the bucket as well.
    favoured_values: frozenset[str] = frozenset()
    favoured_buckets: frozenset[str] = frozenset()
    # How much more the error of a token counts that shows the product.
    product_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Clean latents (B, C, F, H, W), their attributes, and whether the first frame is given.

    `weights` (B, 1, F, H, W) say how much each token's error counts, on average 1.
    """

    latents: Tensor
    scenes: list[dict[str, str | None]]
    is_first_given: bool
    weights: Tensor | None = None


class TextSource:
    """Embeds captions with the frozen text encoder."""

    def __init__(self, run: RunFolder) -> None:
        self.tokenizer, self.encoder = load_text(run)

    @torch.no_grad()
    def embed(self, texts: list[str]) -> list[Tensor]:
        ids, mask = tokenise(self.tokenizer, texts)
        hidden = self.encoder(ids, attention_mask=mask).last_hidden_state
        return [row[: int(m.sum())] for row, m in zip(hidden, mask, strict=True)]

    def inputs(self, texts: list[str], rng: random.Random) -> tuple[Tensor, Tensor]:
        """Embeddings and attention bias as for one of the usual prompt lengths each."""
        embeddings = self.embed(texts)
        pads = [max(0, rng.choice(PROMPT_LENGTHS) - len(e)) for e in embeddings]
        return text_inputs(embeddings, pads)


def flow_loss(
    run_pass: TrainingPass, batch: Batch, text: tuple[Tensor, Tensor], times: Tensor, noise: Tensor
) -> Tensor:
    """Mean squared velocity error; times (B,) in 0..1 with 1 = pure noise."""
    clean = batch.latents
    t = times.view(-1, 1, 1, 1, 1)
    noisy = (1 - t) * clean + t * noise
    rows = torch.stack((times, times), dim=1) * 1000
    if batch.is_first_given:
        noisy[:, :, 0] = clean[:, :, 0]
        rows[:, 0] = 0
    with torch.autocast("cpu", torch.bfloat16):
        velocity = run_pass(noisy, rows, *text)
    error = (velocity.float() - (noise - clean)).square()
    if batch.weights is not None:
        error = error * batch.weights
    return error[:, :, 1:].mean() if batch.is_first_given else error.mean()


class LatentSampler:
    """Draws batches from the latent cache."""

    def __init__(self, cache: LatentCache, plan: TransformerPlan, rng: np.random.Generator) -> None:
        self.buckets = {b: cache.load(b, held_out=False) for b in vocabulary.SIZES}
        self.plan, self.rng = plan, rng
        self._covers = (
            {bucket: cache.load_covers(bucket) for bucket in vocabulary.SIZES}
            if plan.product_weight
            else {}
        )
        self._bucket_shares = _shares(bucket in plan.favoured_buckets for bucket in self.buckets)
        self._clip_shares = {
            bucket: _shares(not plan.favoured_values.isdisjoint(s.values()) for s in scenes)
            for bucket, (_, scenes) in self.buckets.items()
        }

    def draw(self) -> tuple[str, Batch]:
        """The task's name and a batch of it from one random bucket."""
        task = str(self.rng.choice(("t2v", "i2v", "t2i"), p=self.plan.shares))
        bucket = str(self.rng.choice(list(self.buckets), p=self._bucket_shares))
        latents, scenes = self.buckets[bucket]
        size = self.plan.image_batch if task == "t2i" else self.plan.batch
        index = self.rng.choice(len(latents), size=size, p=self._clip_shares[bucket])
        frames = slice(0, 1) if task == "t2i" else slice(None)
        chosen = latents[torch.from_numpy(index)].float()[:, :, frames]
        weights = None
        if self.plan.product_weight:
            # A token that it half covers counts in full: its outline tells it apart.
            cover = (2 * self._covers[bucket][index][:, :, frames]).clamp(max=1)
            weights = 1 + self.plan.product_weight * cover
            weights = weights / weights.mean()
        return task, Batch(chosen, [scenes[i] for i in index], task == "i2v", weights)


def _shares(is_favoured: Iterable[bool]) -> np.ndarray:
    weights = np.array([2.0 if each else 1.0 for each in is_favoured])
    shares: np.ndarray = weights / weights.sum()
    return shares


class TransformerTrainer:
    """Trains until the time is up and can resume between any two steps.

    With `cool_down` the rates fall to a twentieth over that many steps, and the result is kept
    beside the run's state, which a later sitting continues at its high rates.
    """

    def __init__(
        self, run: RunFolder, plan: TransformerPlan, *, cool_down: int | None = None
    ) -> None:
        self.run, self.plan, self.cool_down = run, plan, cool_down
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(run.folder("inductor")))
        torch.manual_seed(23)
        self.model = build_transformer()
        parameters = dict(self.model.named_parameters())
        matrices = [n for n, p in parameters.items() if n.startswith("blocks.") and p.ndim == 2]
        rest = [n for n in parameters if n not in set(matrices)]
        self.optimized = (matrices, rest)  # names, in the order of each optimizer
        own, others = ([parameters[name] for name in names] for names in self.optimized)
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon(own, lr=plan.muon_lr, weight_decay=0.01),
            torch.optim.AdamW(others, lr=plan.adam_lr, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self.average = Average(self.model, plan.average_decay)
        self.step = self.samples = 0
        self.minutes = 0.0
        state = run.load("transformer")
        if state is not None:
            self._restore(state)
        self.first_step = self.step
        if cool_down is not None:
            self.average.decay = plan.cool_down_average_decay
        self.text = TextSource(run)
        self.rng = random.Random(self.step)
        self.run_pass = TrainingPass(self.model, compiled=plan.compiled)

    def _restore(self, state: dict[str, Any]) -> None:
        if width_of(state["model"]) < width_of(self.model.state_dict()):
            state = widen_state(state, self.model, self.optimized)
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.samples, self.minutes = state["step"], state["samples"], state["minutes"]

    def save(self) -> None:
        self.run.save(
            "transformer" if self.cool_down is None else "cooled",
            {
                "model": self.model.state_dict(),
                "average": self.average.state_dict(),
                "optimizers": [o.state_dict() for o in self.optimizers],
                "step": self.step,
                "samples": self.samples,
                "minutes": self.minutes,
            },
        )

    def _set_rate(self) -> None:
        step, plan = self.step + 1, self.plan
        factor = min(1.0, step / plan.warm_up_steps)
        factor *= min(1.0, math.sqrt(plan.decay_from_step / step))
        if self.cool_down is not None:
            left = 1 - (self.step - self.first_step) / self.cool_down
            factor *= max(0.05, plan.cool_from * left)
        for optimizer, rate in zip(self.optimizers, (plan.muon_lr, plan.adam_lr), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor

    def one_step(self, batch: Batch) -> float:
        """One update; returns the loss."""
        size = len(batch.latents)
        texts = [
            "" if self.rng.random() < self.plan.caption_dropout else caption(s, self.rng)[0]
            for s in batch.scenes
        ]
        u = torch.sigmoid(torch.randn(size) * 1.1)
        times = self.plan.shift * u / (1 + (self.plan.shift - 1) * u)
        noise = torch.randn_like(batch.latents)
        loss = flow_loss(self.run_pass, batch, self.text.inputs(texts, self.rng), times, noise)
        self._set_rate()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.average.update(self.model)
        self.step += 1
        self.samples += size
        return float(loss.detach())

    def train(self, cache: LatentCache, timer: Timer) -> bool:
        """Train until the time or the plan's steps are up; True when the steps are done."""
        sampler = LatentSampler(cache, self.plan, np.random.default_rng(self.step))
        losses: dict[str, list[float]] = defaultdict(list)
        began = time.monotonic()
        while not timer.is_over() and not self.is_done():
            task, batch = sampler.draw()
            losses[task].append(self.one_step(batch))
            if self.step % LOG_EVERY == 0:
                means = {name: round(float(np.mean(v)), 4) for name, v in losses.items()}
                self.minutes += (time.monotonic() - began) / 60
                began = time.monotonic()
                self.run.log(
                    "transformer",
                    step=self.step,
                    samples=self.samples,
                    minutes=round(self.minutes, 2),
                    **means,
                )
                losses.clear()
            if self.step % VALIDATE_EVERY == 0:
                self.report(cache)
                began = time.monotonic()
            if timer.is_checkpoint_due():
                self.save()
                # The cache may have been extended meanwhile.
                sampler = LatentSampler(cache, self.plan, np.random.default_rng(self.step))
        self.save()
        return self.is_done()

    def is_done(self) -> bool:
        if self.cool_down is not None:
            return self.step >= self.first_step + self.cool_down
        return self.plan.steps is not None and self.step >= self.plan.steps

    def report(self, cache: LatentCache) -> None:
        """Log held-out losses of the averaged weights and write a sample sheet."""
        current = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.average.weights)
        values = self.validate(cache)
        self.run.log("transformer", step=self.step, samples=self.samples, **values)
        path = self.run.folder("sheets") / f"transformer-{self.step:06d}.png"
        sample_sheet(self.run, self.model, cache.stats(), path)
        self.model.load_state_dict(current)

    @torch.no_grad()
    def validate(self, cache: LatentCache) -> dict[str, float]:
        """Held-out velocity error with the right captions and with another clip's."""
        sums: dict[str, list[float]] = defaultdict(list)
        plain = TrainingPass(self.model, compiled=False)
        generator = torch.Generator().manual_seed(1)
        rng = random.Random(1)
        for bucket in vocabulary.SIZES:
            latents, scenes = cache.load(bucket, held_out=True)
            clean, scenes = latents[:16].float(), scenes[:16]
            noise = torch.randn(clean.shape, generator=generator)
            times = (torch.arange(16) + 0.5) / 16
            texts = [phrase({k: v for k, v in s.items() if v is not None}, rng) for s in scenes]
            for name, words in (("right", texts), ("wrong", texts[1:] + texts[:1])):
                text = self.text.inputs(words, random.Random(2))
                for task in ("t2v", "i2v"):
                    batch = Batch(clean, scenes, task == "i2v")
                    loss = flow_loss(plain, batch, text, times, noise)
                    sums[f"{task}_{name}"].append(float(loss))
        return {name: round(float(np.mean(v)), 4) for name, v in sums.items()}
