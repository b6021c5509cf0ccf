"""Writes a run's averaged weights as a diffusers checkpoint folder."""

import json
import shutil
from pathlib import Path

import torch
from diffusers import WanPipeline

from engine.tiny.latents import LatentCache
from engine.tiny.runs import RunFolder
from engine.tiny.sampling import assemble
from engine.tiny.transformer import build_transformer

MAX_SIZE_BYTES = 32 * 1024 * 1024


def trained_pipeline(run: RunFolder) -> WanPipeline:
    """The pipeline of a run's averaged weights, in float32; cooled ones if none are newer."""
    state, cooled = run.load("transformer"), run.load("cooled")
    if state is None:
        raise FileNotFoundError(f"no trained transformer in {run.root}: --stage transformer")
    if cooled is not None and cooled["step"] >= state["step"]:
        state = cooled
    transformer = build_transformer()
    transformer.load_state_dict(state["average"]["weights"])
    return assemble(run, transformer.eval(), LatentCache(run).stats())


def export(run: RunFolder, target: Path) -> int:
    """Save the pipeline in float16 under `target`, with the judge; returns the size in bytes.

    Files that belong to the folder but not to a run, such as its model card, stay.
    """
    pipeline = trained_pipeline(run)
    for part in (pipeline.vae, pipeline.text_encoder, pipeline.transformer):
        # Also the modules diffusers keeps in float32: loading restores them to that type.
        for parameter in part.parameters():
            parameter.data = parameter.data.to(torch.float16)
    pipeline.save_pretrained(target)
    _correct_configs(target)
    judge = run.folder("judge") / "judge.safetensors"
    if judge.exists():
        (target / "judge").mkdir(exist_ok=True)
        shutil.copyfile(judge, target / "judge" / judge.name)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    if size > MAX_SIZE_BYTES:
        raise RuntimeError(f"{target} has {size} bytes, more than the {MAX_SIZE_BYTES} allowed")
    return size


def _correct_configs(target: Path) -> None:
    """Name classes and types so that loading needs nothing but the libraries' defaults."""
    index = target / "model_index.json"
    config = json.loads(index.read_text())
    config["tokenizer"] = ["transformers", "PreTrainedTokenizerFast"]
    index.write_text(json.dumps(config, indent=2) + "\n")
    # Without this, transformers would compute in the float16 that only saves disk space.
    encoder = target / "text_encoder" / "config.json"
    config = json.loads(encoder.read_text())
    config["dtype"] = "float32"
    encoder.write_text(json.dumps(config, indent=2) + "\n")
