"""Judge a checkpoint: `python -m engine.tiny.evaluate` renders unseen prompts and reads them back.

The prompts name every attribute in wording and combinations drawn from seeds that training never
uses. A small classifier, trained on generator clips only, says what each render shows.
"""

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from diffusers import WanImageToVideoPipeline, WanPipeline
from PIL import Image

from engine.tiny import vocabulary
from engine.tiny.captions import phrase
from engine.tiny.classifier import Judge, load_judge, read_attributes
from engine.tiny.clips import render_seeded
from engine.tiny.runs import to_model_range
from engine.tiny.sampling import GUIDANCE, STEPS, contact_sheet, image_to_video, render_prompts
from engine.tiny.scenes import Scene, render, sample_scene
from engine.tiny.text import MAX_TOKENS
from engine.tiny.vae import psnr

FIRST_SEED = 10_000
BATCH = 8
WEIGHTS_FOLDER = Path(__file__).parents[1] / "weights" / "tiny"


@dataclass
class Tally:
    """Right readings and tries per attribute."""

    right: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    tried: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, wanted: Scene, read: dict[str, str | None], skip: tuple[str, ...] = ()) -> None:
        for name, value in wanted.attributes().items():
            if value is not None and name not in skip:
                self.tried[name] += 1
                self.right[name] += read[name] == value

    def shares(self) -> dict[str, float]:
        return {name: round(self.right[name] / n, 4) for name, n in self.tried.items()}


def held_out_scene(seed: int) -> Scene:
    """A scene no training clip was drawn for; it always has a landmark and a sign."""
    rng = np.random.default_rng([seed, 2])
    while True:
        scene = sample_scene(rng)
        if scene.geography is not None and scene.audience is not None:
            return scene


def prompt_of(scene: Scene, seed: int) -> str:
    """A prompt that names every attribute of the scene."""
    named = {name: value for name, value in scene.attributes().items() if value is not None}
    return phrase(named, random.Random(seed))


class Evaluation:
    """Renders and judges; keeps a few frames for the contact sheet."""

    def __init__(self, pipeline: WanPipeline, judge: Judge) -> None:
        self.pipeline, self.judge = pipeline, judge
        self.rows: list[tuple[str, list[np.ndarray]]] = []

    def text_to_video(self, per_bucket: int, num_frames: int) -> dict[str, dict[str, float]]:
        """Accuracy per attribute, for each bucket and over all."""
        skip = ("motion",) if num_frames == 1 else ()
        total, report = Tally(), {}
        for index, bucket in enumerate(vocabulary.SIZES):
            tally = Tally()
            first = FIRST_SEED + 1000 * index
            for start in range(first, first + per_bucket, BATCH):
                seeds = list(range(start, min(start + BATCH, first + per_bucket)))
                scenes = [held_out_scene(seed) for seed in seeds]
                prompts = [prompt_of(s, seed) for s, seed in zip(scenes, seeds, strict=True)]
                clips = render_prompts(self.pipeline, bucket, prompts, seeds, num_frames)
                for scene, read in zip(scenes, read_attributes(self.judge, clips), strict=True):
                    tally.add(scene, read, skip)
                    total.add(scene, read, skip)
                if start == first and num_frames > 1:
                    self._keep(prompts[:3], clips)
            report[bucket] = tally.shares()
        return {"all": total.shares(), **report}

    def _keep(self, prompts: list[str], clips: np.ndarray) -> None:
        middle, last = clips.shape[1] // 2, clips.shape[1] - 1
        for prompt, clip in zip(prompts, clips, strict=False):
            self.rows.append((prompt, [clip[0], clip[middle], clip[last]]))

    def image_to_video(self, count: int) -> dict[str, float]:
        """Accuracy when the first frame is given, and how well that frame is kept (dB)."""
        pipeline: WanImageToVideoPipeline = image_to_video(self.pipeline)
        pipeline.set_progress_bar_config(disable=True)
        tally, kept = Tally(), []
        buckets = list(vocabulary.SIZES)
        for seed in range(FIRST_SEED + 5000, FIRST_SEED + 5000 + count):
            scene = held_out_scene(seed)
            height, width = vocabulary.SIZES[buckets[seed % len(buckets)]]
            frame = render(scene, height=height, width=width, seed=seed)[0].numpy()
            output = pipeline(
                image=Image.fromarray(frame),
                prompt=prompt_of(scene, seed),
                height=height,
                width=width,
                num_frames=vocabulary.NUM_FRAMES,
                num_inference_steps=STEPS,
                guidance_scale=GUIDANCE,
                max_sequence_length=MAX_TOKENS,
                generator=torch.Generator().manual_seed(seed),
                output_type="np",
            )
            clip = np.rint(np.asarray(output.frames) * 255).astype(np.uint8)
            tally.add(scene, read_attributes(self.judge, clip)[0])
            pair = to_model_range(torch.from_numpy(np.stack([clip[0, :1], frame[None]])))
            kept.append(float(psnr(pair[:1], pair[1:])))
        return {**tally.shares(), "first_frame_psnr_db": round(float(np.mean(kept)), 2)}

    @torch.no_grad()
    def reconstruction(self, per_bucket: int) -> dict[str, float]:
        """PSNR in dB of unseen clips through the VAE, per bucket."""
        vae, report = self.pipeline.vae, {}
        for bucket in vocabulary.SIZES:
            scores = []
            for seed in range(600_000, 600_000 + per_bucket):
                clip = to_model_range(render_seeded(bucket, seed).unsqueeze(0))
                output = vae.decode(vae.encode(clip).latent_dist.mode()).sample
                scores.append(float(psnr(output, clip)))
            report[bucket] = round(float(np.mean(scores)), 2)
        report["all"] = round(float(np.mean(list(report.values()))), 2)
        return report

    @torch.no_grad()
    def stage_seconds(self) -> dict[str, float]:
        """Seconds of one clip at the default size, split by stage; the second of two runs."""
        height, width = vocabulary.SIZES["16:9"]
        prompt = "a red sneaker on a beach, san francisco, for young runners"
        seconds: dict[str, float] = {}
        for _ in range(2):
            began = time.perf_counter()
            positive, negative = self.pipeline.encode_prompt(
                prompt, do_classifier_free_guidance=True, max_sequence_length=MAX_TOKENS
            )
            encoded = time.perf_counter()
            latents = self.pipeline(
                prompt_embeds=positive,
                negative_prompt_embeds=negative,
                height=height,
                width=width,
                num_frames=vocabulary.NUM_FRAMES,
                num_inference_steps=STEPS,
                guidance_scale=GUIDANCE,
                output_type="latent",
            ).frames
            denoised = time.perf_counter()
            self.pipeline.vae.decode(latents)
            decoded = time.perf_counter()
            seconds = {
                "text": encoded - began,
                "denoise": denoised - encoded,
                "decode": decoded - denoised,
            }
        return {name: round(value, 3) for name, value in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.tiny.evaluate", description=__doc__)
    parser.add_argument("--weights", type=Path, default=WEIGHTS_FOLDER, help="checkpoint folder")
    parser.add_argument("--judge", type=Path, help="folder of the judge (default: in the weights)")
    parser.add_argument("--per-bucket", type=int, default=50, help="prompts per aspect bucket")
    parser.add_argument("--image-to-video", type=int, default=40, help="clips with a given frame")
    parser.add_argument("--out", type=Path, required=True, help="folder of report and sheet")
    parser.add_argument("--threads", type=int, default=1, help="processor threads")
    options = parser.parse_args()
    if not (options.weights / "model_index.json").exists():
        parser.exit(2, f"error: {options.weights} holds no checkpoint (no model_index.json)\n")
    torch.set_num_threads(options.threads)
    try:
        judge = load_judge(options.judge or options.weights / "judge")
    except FileNotFoundError as error:
        parser.exit(2, f"error: {error}\n")
    pipeline = WanPipeline.from_pretrained(options.weights, local_files_only=True)
    evaluation = Evaluation(pipeline, judge)
    report = {
        "text_to_video": evaluation.text_to_video(options.per_bucket, vocabulary.NUM_FRAMES),
        "text_to_image": evaluation.text_to_video(options.per_bucket, 1),
        "image_to_video": evaluation.image_to_video(options.image_to_video),
        "vae_psnr_db": evaluation.reconstruction(10),
        "seconds": evaluation.stage_seconds(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    contact_sheet(evaluation.rows, options.out / "sheet.png")
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
