"""The cache of encoded clips: what the transformer trains on, extended shard by shard."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKLWan
from torch import Tensor

from engine.tiny import vocabulary
from engine.tiny.clips import ClipCache, training_scene
from engine.tiny.runs import RunFolder, Timer, to_model_range
from engine.tiny.scenes import product_cover
from engine.tiny.vae import build_vae, encode_clips, whole_clip_passes

HELD_OUT_SHARDS = 1  # the first shard of each bucket validates and is never trained on


@dataclass(frozen=True, slots=True)
class LatentStats:
    """What the VAE's config calls latents_mean and latents_std."""

    mean: list[float]
    std: list[float]

    def normalise(self, latents: Tensor) -> Tensor:
        shape = (1, -1, 1, 1, 1)
        return (latents - torch.tensor(self.mean).view(shape)) / torch.tensor(self.std).view(shape)

    def denormalise(self, latents: Tensor) -> Tensor:
        shape = (1, -1, 1, 1, 1)
        return latents * torch.tensor(self.std).view(shape) + torch.tensor(self.mean).view(shape)


def measure_stats(latents: Tensor) -> LatentStats:
    """Statistics of raw latents (B, C, F, H, W).

    The channels are only half whitened: strong ones keep more variance, so that noise hides the
    fine detail first and the layout last. Overall the variance is one.
    """
    flat = latents.transpose(0, 1).flatten(1)
    std = flat.std(1)
    scale = std.sqrt()
    scale = scale * (std / scale).square().mean().sqrt()
    return LatentStats(flat.mean(1).tolist(), scale.tolist())


def load_trained_vae(run: RunFolder) -> AutoencoderKLWan:
    """The averaged VAE: the encoder of the VAE stage, the decoder of the latest stage."""
    state = run.load("decoder") or run.load("vae")
    if state is None:
        raise FileNotFoundError(f"no trained VAE in {run.root}; train it first: --stage vae")
    vae = build_vae()
    vae.load_state_dict(state["average"]["weights"])
    return vae.eval()


class LatentCache:
    """Normalised latents on disk, one file per shard and bucket."""

    def __init__(self, run: RunFolder, clips: ClipCache | None = None) -> None:
        self.run = run
        self.clips = clips or ClipCache(run.folder("clips"))
        self.folder = run.folder("latents")

    def _path(self, bucket: str, shard: int) -> Path:
        return self.folder / bucket.replace(":", "x") / f"{shard:04d}.pt"

    def stats(self) -> LatentStats:
        return LatentStats(**json.loads((self.folder / "stats.json").read_text()))

    def extend(self, clips_per_bucket: int, timer: Timer) -> bool:
        """Encode the shards that are missing; True when all are there."""
        missing = [
            (bucket, shard)
            for shard in range(clips_per_bucket // self.clips.shard_clips)
            for bucket in vocabulary.SIZES
            if not self._path(bucket, shard).exists()
        ]
        vae = load_trained_vae(self.run) if missing else None
        for bucket, shard in missing:
            if timer.is_over():
                return False
            assert vae is not None
            clips, scenes = self.clips.read(bucket, shard)
            raw = encode_many(vae, clips)
            if not (self.folder / "stats.json").exists():
                (self.folder / "stats.json").write_text(json.dumps(asdict(measure_stats(raw))))
            path = self._path(bucket, shard)
            path.parent.mkdir(exist_ok=True)
            partial = path.with_suffix(".partial")
            torch.save(
                {
                    "latents": self.stats().normalise(raw).half(),
                    "scenes": [scene.attributes() for scene in scenes],
                },
                partial,
            )
            partial.rename(path)
            self.run.log("latents", bucket=bucket, shard=shard)
        return True

    def load_covers(self, bucket: str) -> Tensor:
        """How much of each token of the training clips shows the product: 0 to 1, (N, 1, F, h, w).

        Worked out once for each shard and kept beside its latents.
        """
        covers = []
        for shard in range(HELD_OUT_SHARDS, len(self._paths(bucket))):
            path = self._path(bucket, shard).with_suffix(".cover")
            if not path.exists():
                torch.save(self._shard_covers(bucket, shard), path)
            covers.append(torch.load(path, weights_only=True))
        return torch.cat(covers).float()

    def _shard_covers(self, bucket: str, shard: int) -> Tensor:
        height, width = vocabulary.SIZES[bucket]
        covers = [
            token_cover(product_cover(training_scene(seed), height=height, width=width, seed=seed))
            for seed in self.clips.seeds(bucket, shard)
        ]
        return torch.stack(covers).half()

    def _paths(self, bucket: str) -> list[Path]:
        return sorted(self._path(bucket, 0).parent.glob("????.pt"))

    def load(self, bucket: str, *, held_out: bool) -> tuple[Tensor, list[dict[str, str | None]]]:
        """Latents (N, C, F, H, W) as float16 and the attributes of each clip."""
        paths = self._paths(bucket)
        paths = paths[:HELD_OUT_SHARDS] if held_out else paths[HELD_OUT_SHARDS:]
        if not paths:
            raise FileNotFoundError(f"no latents in {self.folder}; encode some: --stage latents")
        shards = [torch.load(path, weights_only=True) for path in paths]
        latents = torch.cat([shard["latents"] for shard in shards])
        return latents, [scene for shard in shards for scene in shard["scenes"]]


def token_cover(cover: Tensor) -> Tensor:
    """Mean of a clip's cover (F, H, W) over each token's pixels: (1, 1 + (F - 1) / 4, h, w)."""
    frames, height, width = cover.shape
    blocks = cover.reshape(frames, height // 16, 16, width // 16, 16).mean((2, 4))
    later = blocks[1:].reshape((frames - 1) // 4, 4, *blocks.shape[1:]).mean(1)
    return torch.cat((blocks[:1], later))[None]


@torch.no_grad()
def encode_many(vae: AutoencoderKLWan, clips: Tensor | np.ndarray, batch: int = 4) -> Tensor:
    """Raw latents of uint8 clips (N, F, H, W, 3)."""
    out = []
    for start in range(0, len(clips), batch):
        part = to_model_range(torch.as_tensor(np.array(clips[start : start + batch])))
        with whole_clip_passes(), torch.autocast("cpu", torch.bfloat16):
            out.append(encode_clips(vae, part).float())
    return torch.cat(out)
