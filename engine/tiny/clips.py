"""The cache of rendered clips: shards on disk, extended when more are wanted."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
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


class ClipCache:
    """Rendered shards under `folder`, as memory-mapped arrays of `shard_clips` clips each."""

    def __init__(self, folder: Path, shard_clips: int = SHARD_CLIPS) -> None:
        self.folder, self.shard_clips = folder, shard_clips

    def _path(self, bucket: str, shard: int) -> Path:
        return self.folder / bucket.replace(":", "x") / f"{shard:04d}.npy"

    def seeds(self, bucket: str, shard: int) -> range:
        """Seeds of one shard; buckets never share a seed."""
        first = FIRST_TRAINING_SEED * (1 + list(vocabulary.SIZES).index(bucket))
        return range(first + shard * self.shard_clips, first + (shard + 1) * self.shard_clips)

    def ensure(self, clips_per_bucket: int) -> None:
        """Render the shards that are missing."""
        for shard in range(clips_per_bucket // self.shard_clips):
            for bucket in vocabulary.SIZES:
                path = self._path(bucket, shard)
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    clips, scenes = self.render(bucket, shard)
                    partial = path.with_suffix(".partial.npy")
                    np.save(partial, clips)
                    path.with_suffix(".json").write_text(json.dumps([asdict(s) for s in scenes]))
                    partial.rename(path)

    def render(self, bucket: str, shard: int) -> tuple[np.ndarray, list[Scene]]:
        """Clips (N, F, H, W, 3) uint8 of one shard and their scenes, without keeping them."""
        seeds = self.seeds(bucket, shard)
        clips = np.stack([render_seeded(bucket, seed).numpy() for seed in seeds])
        return clips, [training_scene(seed) for seed in seeds]

    def read(self, bucket: str, shard: int) -> tuple[np.ndarray, list[Scene]]:
        """Clips and scenes of one shard, rendered anew when they are not in the cache."""
        path = self._path(bucket, shard)
        if not path.exists():
            return self.render(bucket, shard)
        kept = json.loads(path.with_suffix(".json").read_text())
        return np.load(path, mmap_mode="r"), [Scene(**attributes) for attributes in kept]

    def open(self, bucket: str) -> list[np.ndarray]:
        """All complete shards of one bucket."""
        paths = sorted(self._path(bucket, 0).parent.glob("????.npy"))
        return [np.load(path, mmap_mode="r") for path in paths]
