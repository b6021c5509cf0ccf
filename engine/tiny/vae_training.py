"""Training of the VAE on single frames, then short crops; later its decoder alone, on clips."""

from dataclasses import dataclass

import numpy as np
import torch
from diffusers import AutoencoderKLWan
from PIL import Image
from torch import Tensor, nn

from engine.tiny import vocabulary
from engine.tiny.clips import ClipCache, render_seeded
from engine.tiny.muon import Muon
from engine.tiny.runs import Average, RunFolder, Timer, cosine, set_rate, to_model_range
from engine.tiny.vae import (
    build_vae,
    decode_clips,
    encode_clips,
    psnr,
    reconstruction_loss,
    start_linear,
    whole_clip_passes,
)

LOG_EVERY = 50
VALIDATE_EVERY = 500


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of training on one kind of sample."""

    name: str
    steps: int
    batch: int
    frames: int
    crop: int | None  # side of a square crop in pixels; None = whole frame
    rate: float  # factor on the base learning rates
    latent_noise: float


@dataclass(frozen=True, slots=True)
class VaePlan:
    """How the VAE is trained; the defaults are what the shipped weights were trained with."""

    phases: tuple[Phase, ...] = (
        Phase("frames", 2000, 8, 1, None, 1.0, 0.0),
        Phase("crops", 2400, 4, 9, 80, 0.5, 0.02),
    )
    decoder_phases: tuple[Phase, ...] = (Phase("clips", 6000, 1, 17, None, 0.5, 0.05),)
    clips_per_bucket: int = 600
    muon_lr: float = 2e-3
    adam_lr: float = 1.2e-3
    average_decay: float = 0.998
    kl_weight: float = 1e-4
    start_images: int = 512


class ClipSampler:
    """Draws training samples from the clip cache."""

    def __init__(self, cache: ClipCache, seed: int) -> None:
        self.shards = {bucket: cache.open(bucket) for bucket in vocabulary.SIZES}
        self.rng = np.random.default_rng(seed)

    def draw(self, phase: Phase) -> Tensor:
        """A batch (B, 3, F, H, W) in [-1, 1] from one random bucket."""
        bucket = str(self.rng.choice(list(self.shards)))
        samples = []
        for _ in range(phase.batch):
            shard = self.shards[bucket][self.rng.integers(len(self.shards[bucket]))]
            clip = shard[self.rng.integers(len(shard))]
            start = int(self.rng.integers(clip.shape[0] - phase.frames + 1))
            clip = clip[start : start + phase.frames]
            if phase.crop is not None:
                top = int(self.rng.integers(clip.shape[1] - phase.crop + 1))
                left = int(self.rng.integers(clip.shape[2] - phase.crop + 1))
                clip = clip[:, top : top + phase.crop, left : left + phase.crop]
            samples.append(torch.from_numpy(np.array(clip)))
        return to_model_range(torch.stack(samples))


def optimizers_of(module: nn.Module, muon_lr: float, adam_lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the weights of layers, AdamW for norms and biases."""
    trainable = [p for p in module.parameters() if p.requires_grad]
    matrices = [p for p in trainable if p.ndim >= 2 and p[0].numel() > 8]
    chosen = {id(p) for p in matrices}
    rest = [p for p in trainable if id(p) not in chosen]
    return [
        Muon(matrices, lr=muon_lr),
        torch.optim.AdamW(rest, lr=adam_lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def training_loss(
    vae: AutoencoderKLWan, batch: Tensor, phase: Phase, plan: VaePlan, *, decoder_only: bool
) -> Tensor:
    with whole_clip_passes(), torch.autocast("cpu", torch.bfloat16):
        with torch.set_grad_enabled(not decoder_only):
            latents = encode_clips(vae, batch).float()
        noisy = latents
        if phase.latent_noise:
            noisy = latents + phase.latent_noise * latents.detach().std() * torch.randn_like(
                latents
            )
        output = decode_clips(vae, noisy).float()
    loss = reconstruction_loss(output, batch)
    return loss if decoder_only else loss + plan.kl_weight * latents.square().mean()


def validation_clips(per_bucket: int = 4) -> list[Tensor]:
    """Clips that no training seed gives, one tensor (B, 3, F, H, W) per bucket."""
    return [
        to_model_range(torch.stack([render_seeded(bucket, 500_000 + i) for i in range(per_bucket)]))
        for bucket in vocabulary.SIZES
    ]


@torch.no_grad()
def validate(vae: AutoencoderKLWan, clips: list[Tensor], sheet: str | None) -> float:
    """Mean PSNR in dB of unseen clips through diffusers' own encode and decode."""
    scores, rows = [], []
    for batch in clips:
        output = vae.decode(vae.encode(batch).latent_dist.mode()).sample
        scores.append(psnr(output, batch))
        middle = batch.shape[2] // 2
        pair = torch.cat((batch[:2, :, middle], output[:2, :, middle].clamp(-1, 1)), dim=3)
        rows += list(((pair + 1) * 127.5).byte().permute(0, 2, 3, 1).numpy())
    if sheet is not None:
        width = max(row.shape[1] for row in rows)
        padded = [np.pad(row, ((0, 0), (0, width - row.shape[1]), (0, 0))) for row in rows]
        Image.fromarray(np.concatenate(padded)).save(sheet)
    return float(torch.cat(scores).mean())


class VaeTrainer:
    """Runs the phases of a plan and can stop and resume between any two steps."""

    def __init__(self, run: RunFolder, plan: VaePlan, *, decoder_only: bool = False) -> None:
        self.run, self.plan, self.decoder_only = run, plan, decoder_only
        self.stage = "decoder" if decoder_only else "vae"
        torch.manual_seed(17)
        self.vae = build_vae()
        self.step = 0
        state = run.load(self.stage)
        if decoder_only and state is None:
            trained = run.load("vae")
            if trained is None:
                raise FileNotFoundError("train the VAE before its decoder: --stage vae")
            self.vae.load_state_dict(trained["average"]["weights"])
        if decoder_only:
            self.vae.encoder.requires_grad_(False)
            self.vae.quant_conv.requires_grad_(False)
        self.optimizers = optimizers_of(self.vae, plan.muon_lr, plan.adam_lr)
        self.average = Average(self.vae, plan.average_decay)
        if state is not None:
            self._restore(state)

    def _restore(self, state: dict) -> None:  # type: ignore[type-arg]
        self.vae.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step = state["step"]

    def save(self) -> None:
        self.run.save(
            self.stage,
            {
                "model": self.vae.state_dict(),
                "average": self.average.state_dict(),
                "optimizers": [o.state_dict() for o in self.optimizers],
                "step": self.step,
            },
        )

    def phase_at(self, step: int) -> tuple[Phase, float] | None:
        """The phase of a step and how far it has come, or None after the last one."""
        phases = self.plan.decoder_phases if self.decoder_only else self.plan.phases
        for phase in phases:
            if step < phase.steps:
                return phase, step / phase.steps
            step -= phase.steps
        return None

    def train(self, cache: ClipCache, timer: Timer) -> bool:
        """Train until the plan or the time ends; True when the plan is complete."""
        sampler = ClipSampler(cache, seed=1000 + self.step)
        if self.step == 0 and not self.decoder_only:
            first = Phase("start", 0, self.plan.start_images // 8, 1, None, 0, 0)
            blocks = [sampler.draw(first)[:, :, 0, :128, :128] for _ in range(8)]
            start_linear(self.vae, torch.cat(blocks))
            self.average = Average(self.vae, self.plan.average_decay)
        unseen = validation_clips()
        total = 0.0
        while (current := self.phase_at(self.step)) is not None and not timer.is_over():
            phase, progress = current
            warm_up = min(1.0, (self.step + 1) / 40)
            set_rate(self.optimizers, phase.rate * cosine(progress, 0.1) * warm_up)
            total += self._one_step(sampler.draw(phase), phase)
            if self.step % LOG_EVERY == 0:
                self.run.log(self.stage, step=self.step, phase=phase.name, loss=total / LOG_EVERY)
                total = 0.0
            if self.step % VALIDATE_EVERY == 0:
                seen = unseen if phase.frames > 1 else [clips[:, :, 8:9] for clips in unseen]
                self._report(seen)
            if timer.is_checkpoint_due():
                self.save()
        self.save()
        return self.phase_at(self.step) is None

    def _one_step(self, batch: Tensor, phase: Phase) -> float:
        loss = training_loss(self.vae, batch, phase, self.plan, decoder_only=self.decoder_only)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_([p for p in self.vae.parameters() if p.requires_grad], 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        self.average.update(self.vae)
        return float(loss.detach())

    def _report(self, unseen: list[Tensor]) -> None:
        """Log the PSNR of the averaged weights and write a sheet."""
        current = {k: v.clone() for k, v in self.vae.state_dict().items()}
        self.vae.load_state_dict(self.average.weights)
        sheet = self.run.folder("sheets") / f"{self.stage}-{self.step:06d}.png"
        self.run.log(self.stage, step=self.step, psnr=validate(self.vae, unseen, str(sheet)))
        self.vae.load_state_dict(current)
