"""Starts a run from an exported checkpoint, for when its own states are gone."""

import json
from dataclasses import asdict
from pathlib import Path

from diffusers import WanPipeline

from engine.tiny.latents import LatentCache, LatentStats
from engine.tiny.runs import Average, RunFolder
from engine.tiny.text import save_text
from engine.tiny.transformer_training import TransformerPlan, TransformerTrainer
from engine.tiny.vae_training import VaePlan, VaeTrainer

# The averages count as settled, so that the first steps do not overwrite them.
SETTLED = 1000


def restore(run: RunFolder, checkpoint: Path) -> None:
    """Fill an empty run with the weights of `checkpoint`; optimizers start anew, warming up.

    Caches are not part of a checkpoint: clips and latents are made again by their stages.
    """
    if not (checkpoint / "model_index.json").exists():
        raise FileNotFoundError(f"{checkpoint} holds no checkpoint (no model_index.json)")
    if run.state_path("vae").exists() or run.state_path("transformer").exists():
        raise FileExistsError(f"{run.root} already holds a run; resume it without --init-from")
    pipeline = WanPipeline.from_pretrained(checkpoint, local_files_only=True)
    save_text(run, pipeline.tokenizer, pipeline.text_encoder)
    stats = LatentStats(pipeline.vae.config.latents_mean, pipeline.vae.config.latents_std)
    (LatentCache(run).folder / "stats.json").write_text(json.dumps(asdict(stats)))

    vae = VaeTrainer(run, VaePlan())
    vae.vae.load_state_dict(pipeline.vae.state_dict())
    vae.average = Average(vae.vae, vae.plan.average_decay, count=SETTLED)
    vae.step = sum(phase.steps for phase in vae.plan.phases)
    vae.save()

    transformer = TransformerTrainer(run, TransformerPlan(compiled=False))
    transformer.model.load_state_dict(pipeline.transformer.state_dict())
    transformer.average = Average(transformer.model, transformer.plan.average_decay, count=SETTLED)
    transformer.save()
