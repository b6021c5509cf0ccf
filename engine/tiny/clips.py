"""The cache of rendered clips: shards on disk, extended when more are wanted."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.tiny import vocabulary
from engine.tiny.scenes import Scene, render, sample_scene

SHARD_CLIPS = 100
# Seeds of the training clips start here; evaluation draws its prompts from lower ones.
FIRST_TRAINING_SEED = 1_000_000


def training_scene(seed: int) -> Scene:
    """The scene that belongs to a clip's seed."""
    return sample_scene(np.random.default_rng([seed, 1]))


def render_seeded(bucket: str, seed: int, num_frames: int = vocabulary.NUM_FRAMES) -> Tensor:
    """Clip (F, H, W, 3) uint8 of `training_scene(seed)` in one aspect bucket."""
    height, width = vocabulary.SIZES[bucket]
    return render(
        training_scene(seed), height=height, width=width, seed=seed, num_frames=num_frames
    )


def shard_seed(bucket: str, shard: int) -> int:
    """First seed of a shard; buckets never share a seed."""
    bucket_index = list(vocabulary.SIZES).index(bucket)
    return FIRST_TRAINING_SEED * (bucket_index + 1) + shard * SHARD_CLIPS


def render_shard(bucket: str, shard: int) -> tuple[Tensor, list[Scene]]:
    """Clips (100, F, H, W, 3) uint8 and their scenes."""
    first = shard_seed(bucket, shard)
    seeds = range(first, first + SHARD_CLIPS)
    clips = torch.stack([render_seeded(bucket, seed) for seed in seeds])
    return clips, [training_scene(seed) for seed in seeds]


class ClipCache:
    """Rendered shards under `folder`, as memory-mapped arrays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, bucket: str, shard: int) -> Path:
        return self.folder / bucket.replace(":", "x") / f"{shard:04d}.npy"

    def ensure(self, clips_per_bucket: int) -> None:
        """Render the shards that are missing."""
        for shard in range(clips_per_bucket // SHARD_CLIPS):
            for bucket in vocabulary.SIZES:
                path = self._path(bucket, shard)
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    clips, scenes = render_shard(bucket, shard)
                    partial = path.with_suffix(".partial.npy")
                    np.save(partial, clips.numpy())
                    path.with_suffix(".json").write_text(json.dumps([asdict(s) for s in scenes]))
                    partial.rename(path)

    def read(self, bucket: str, shard: int) -> tuple[np.ndarray, list[Scene]] | None:
        """Clips and scenes of one shard, or None when it was not rendered."""
        path = self._path(bucket, shard)
        if not path.exists():
            return None
        scenes = [
            Scene(**attributes) for attributes in json.loads(path.with_suffix(".json").read_text())
        ]
        return np.load(path, mmap_mode="r"), scenes

    def open(self, bucket: str) -> list[np.ndarray]:
        """All complete shards of one bucket."""
        paths = sorted(self._path(bucket, 0).parent.glob("????.npy"))
        return [np.load(path, mmap_mode="r") for path in paths]
