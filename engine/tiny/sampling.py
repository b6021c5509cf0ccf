"""Rendering from a run's own parts with the stock pipeline, for sample sheets and evaluation."""

from pathlib import Path

import numpy as np
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
)
from PIL import Image, ImageDraw

from engine.tiny import vocabulary
from engine.tiny.latents import LatentStats, load_trained_vae
from engine.tiny.runs import RunFolder
from engine.tiny.text import MAX_TOKENS, load_text

STEPS, GUIDANCE, SHIFT = 30, 4.0, 2.0
SHEET_PROMPTS = (
    ("16:9", "a red sneaker on a beach, san francisco, for young runners, sunset"),
    ("16:9", "a yellow car in the desert, cairo, for gamers, noon, camera pans left"),
    ("16:9", "a green bottle in the forest, paris, for families, morning, product jumps"),
    ("16:9", "a blue mug in a studio, london, for professionals, noon, camera pushes in"),
    ("9:16", "a purple handbag on a city street, new york, for nature lovers, night"),
    ("9:16", "white headphones in the mountains, tokyo, for gamers, sunset"),
    ("1:1", "an orange sneaker in the snow, sydney, for professionals, noon, product floats up"),
    ("4:5", "a black car on a beach, rio de janeiro, for families, morning, camera pulls back"),
)


def assemble(run: RunFolder, transformer: WanTransformer3DModel, stats: LatentStats) -> WanPipeline:
    """The whole pipeline from a run's trained parts."""
    vae = load_trained_vae(run)
    vae.register_to_config(latents_mean=stats.mean, latents_std=stats.std)
    tokenizer, encoder = load_text(run)
    return WanPipeline(
        tokenizer=tokenizer,
        text_encoder=encoder,
        vae=vae,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=SHIFT),
        transformer=transformer,
        expand_timesteps=True,
    )


def image_to_video(pipeline: WanPipeline) -> WanImageToVideoPipeline:
    """The same parts behind the image-to-video pipeline."""
    return WanImageToVideoPipeline(
        **{
            name: pipeline.components[name]
            for name in ("tokenizer", "text_encoder", "vae", "scheduler", "transformer")
        },
        image_encoder=None,
        image_processor=None,
        expand_timesteps=True,
    )


@torch.no_grad()
def render_prompts(
    pipeline: WanPipeline,
    bucket: str,
    prompts: list[str],
    seeds: list[int],
    num_frames: int = vocabulary.NUM_FRAMES,
) -> np.ndarray:
    """uint8 clips (N, F, H, W, 3), one seed each."""
    height, width = vocabulary.SIZES[bucket]
    pipeline.set_progress_bar_config(disable=True)
    output = pipeline(
        prompt=prompts,
        height=height,
        width=width,
        num_frames=num_frames,
        num_inference_steps=STEPS,
        guidance_scale=GUIDANCE,
        max_sequence_length=MAX_TOKENS,
        generator=[torch.Generator().manual_seed(seed) for seed in seeds],
        output_type="np",
    )
    frames: np.ndarray = np.rint(np.asarray(output.frames) * 255).astype(np.uint8)
    return frames


def contact_sheet(rows: list[tuple[str, list[np.ndarray]]], path: Path) -> None:
    """Write labelled rows of frames."""
    heights = [max(f.shape[0] for f in frames) + 14 for _, frames in rows]
    width = max(sum(f.shape[1] + 4 for f in frames) for _, frames in rows)
    sheet = Image.new("RGB", (width, sum(heights)), "white")
    draw, top = ImageDraw.Draw(sheet), 0
    for (label, frames), height in zip(rows, heights, strict=True):
        draw.text((2, top + 1), label, fill="black")
        left = 0
        for frame in frames:
            sheet.paste(Image.fromarray(frame), (left, top + 14))
            left += frame.shape[1] + 4
        top += height
    sheet.save(path)


def sample_sheet(
    run: RunFolder, transformer: WanTransformer3DModel, stats: LatentStats, path: Path
) -> None:
    """Render the sheet prompts and write first, middle and last frame of each."""
    pipeline = assemble(run, transformer, stats)
    rows = []
    for bucket in vocabulary.SIZES:
        prompts = [prompt for b, prompt in SHEET_PROMPTS if b == bucket]
        clips = render_prompts(pipeline, bucket, prompts, list(range(len(prompts))))
        rows += [(p, [c[0], c[8], c[16]]) for p, c in zip(prompts, clips, strict=True)]
    contact_sheet(rows, path)
