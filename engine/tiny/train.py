"""Train the built-in model: `python -m engine.tiny.train --stage all` resumes wherever it stands.

Every stage keeps its state in the train folder and can be stopped with SIGTERM or by `--minutes`.
The transformer has no last step: it trains until it is stopped. Before an export, `--stage cool`
lets its learning rates run out on a copy; later training continues from the original.
"""

import argparse
import sys
from pathlib import Path

import torch

from engine.config import train_dir
from engine.tiny import vocabulary
from engine.tiny.classifier import train_judge
from engine.tiny.clips import ClipCache
from engine.tiny.export import export
from engine.tiny.latents import LatentCache
from engine.tiny.restore import restore
from engine.tiny.runs import RunFolder, Timer
from engine.tiny.text import TextPlan, train_text
from engine.tiny.transformer_training import TransformerPlan, TransformerTrainer
from engine.tiny.vae_training import VaePlan, VaeTrainer

STAGES = ("vae", "text", "judge", "latents", "transformer", "cool", "decoder", "export")
# What `all` runs in order; the decoder is tuned by its own call, beside or after the transformer.
ALL = ("vae", "text", "judge", "latents", "transformer")
WEIGHTS_FOLDER = Path(__file__).parents[1] / "weights" / "tiny"


def is_complete(stage: str, run: RunFolder) -> bool:
    """Whether `all` may pass over a stage that leaves a finished file behind."""
    if stage == "text":
        return (run.folder("text") / "text_encoder").exists()
    return stage == "judge" and (run.folder("judge") / "judge.safetensors").exists()


def run_stage(stage: str, run: RunFolder, timer: Timer, options: argparse.Namespace) -> bool:
    """Run or resume one stage; True when it is complete."""
    if stage in ("vae", "decoder"):
        plan = VaePlan()
        cache = ClipCache(run.folder("clips"))
        cache.ensure(plan.clips_per_bucket)
        return VaeTrainer(run, plan, decoder_only=stage == "decoder").train(cache, timer)
    if stage == "text":
        return train_text(run, timer, TextPlan())
    if stage == "judge":
        ClipCache(run.folder("clips")).ensure(VaePlan().clips_per_bucket)
        return train_judge(run, timer)
    latents = LatentCache(run)
    if stage == "latents":
        return latents.extend(options.clips, timer)
    if stage == "transformer":
        return TransformerTrainer(run, TransformerPlan()).train(latents, timer)
    if stage == "cool":
        return _cool(run, timer, latents, options)
    run.log("export", target=str(options.out), size_bytes=export(run, options.out))
    return True


def _cool(run: RunFolder, timer: Timer, latents: LatentCache, options: argparse.Namespace) -> bool:
    plan = TransformerPlan(
        cool_from=options.cool_from,
        favoured_values=frozenset(options.favour) - vocabulary.SIZES.keys(),
        favoured_buckets=frozenset(options.favour) & vocabulary.SIZES.keys(),
        product_weight=options.product_weight,
    )
    return TransformerTrainer(run, plan, cool_down=options.cool_down).train(latents, timer)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.tiny.train", description=__doc__)
    parser.add_argument("--stage", choices=(*STAGES, "all"), default="all")
    parser.add_argument(
        "--train-dir",
        type=Path,
        default=train_dir(),
        help="folder for caches, states, logs and sheets",
    )
    parser.add_argument("--minutes", type=float, help="stop after this time; the state is kept")
    parser.add_argument("--clips", type=int, default=2000, help="cached clips per aspect bucket")
    parser.add_argument("--cool-down", type=int, default=1000, help="steps of --stage cool")
    parser.add_argument(
        "--cool-from", type=float, default=1.0, help="share of the rates --stage cool begins with"
    )
    parser.add_argument(
        "--favour",
        nargs="*",
        default=[],
        help="values and sizes, such as sneaker 16:9, that --stage cool draws twice as often",
    )
    parser.add_argument(
        "--product-weight",
        type=float,
        default=0.0,
        help="how much more the error on the product counts in --stage cool",
    )
    parser.add_argument("--threads", type=int, default=1, help="processor threads")
    parser.add_argument(
        "--init-from", type=Path, help="fill an empty train folder from an exported checkpoint"
    )
    parser.add_argument("--out", type=Path, default=WEIGHTS_FOLDER, help="folder of --stage export")
    options = parser.parse_args()
    if options.train_dir is None:
        parser.error("name the folder for caches and states: --train-dir or ADLOOM_TRAIN_DIR")
    torch.set_num_threads(options.threads)
    run, timer = RunFolder(options.train_dir), Timer(options.minutes)
    try:
        if options.init_from is not None:
            restore(run, options.init_from)
        stages = [options.stage]
        if options.stage == "all":
            stages = [stage for stage in ALL if not is_complete(stage, run)]
        for stage in stages:
            if not run_stage(stage, run, timer, options):
                break
    except (FileNotFoundError, FileExistsError) as error:
        parser.exit(2, f"error: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
