"""The judge: a small network that reads a clip's attributes, trained on the scenes only."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from engine.tiny import vocabulary
from engine.tiny.clips import ClipCache
from engine.tiny.runs import RunFolder, Timer, cosine
from engine.tiny.scenes import Scene

FRAMES_SEEN = 5
STEPS = 6000
BATCH = 32
# Geography and audience can be absent: class 0 of every attribute means "none".
CLASSES = {name: ("none", *values) for name, values in vocabulary.ATTRIBUTES.items()}


class Judge(nn.Module):
    """Logits per attribute of clips given as `view_clips` makes them."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3 * FRAMES_SEEN
        for out, stride in ((width, 2), (2 * width, 2), (3 * width, 2), (4 * width, 2)):
            layers += [nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)]
            layers += [nn.ReLU(inplace=True)]
            channels = out
        self.body = nn.Sequential(*layers)
        self.heads = nn.ModuleList(nn.Linear(2 * channels, len(c)) for c in CLASSES.values())

    def forward(self, views: Tensor) -> list[Tensor]:
        features = self.body(views)
        pooled = torch.cat((features.mean((2, 3)), features.amax((2, 3))), dim=1)
        return [head(pooled) for head in self.heads]


def view_clips(clips: np.ndarray | Tensor) -> Tensor:
    """Five half-size frames (N, 15, H/2, W/2) in [-1, 1] of uint8 clips (N, F, H, W, 3).

    A single image counts as a clip that stands still.
    """
    clips = torch.as_tensor(np.array(clips))
    index = torch.linspace(0, clips.shape[1] - 1, FRAMES_SEEN).round().long()
    frames = clips[:, index].permute(0, 1, 4, 2, 3).flatten(1, 2).float()
    return F.avg_pool2d(frames, 2) / 127.5 - 1


def label_scenes(scenes: list[Scene]) -> Tensor:
    """Class indices (N, attributes)."""
    return torch.tensor(
        [
            [CLASSES[name].index(value or "none") for name, value in scene.attributes().items()]
            for scene in scenes
        ]
    )


def _augment(views: Tensor) -> Tensor:
    """Blur, noise and exposure: rendered clips are softer than the generator's."""
    if torch.rand(()) < 0.6:
        small = F.interpolate(
            views, scale_factor=float(torch.empty(()).uniform_(0.25, 0.9)), mode="area"
        )
        views = F.interpolate(small, size=views.shape[-2:], mode="bilinear")
    noise = torch.randn_like(views) * float(torch.rand(()) * 0.08)
    gain = 1 + 0.12 * (torch.rand(len(views), 1, 1, 1) - 0.5)
    return views * gain + noise


def train_judge(run: RunFolder, timer: Timer) -> bool:
    """Train on the clip cache and save under `judge/`; True when complete."""
    torch.manual_seed(11)
    rng = np.random.default_rng(11)
    cache = ClipCache(run.folder("clips"))
    shards = {b: len(cache.open(b)) for b in vocabulary.SIZES}
    judge = Judge()
    optimizer = torch.optim.AdamW(judge.parameters(), lr=2e-3, weight_decay=0.02)
    for step in range(STEPS):
        if timer.is_over():
            return False
        bucket = str(rng.choice(list(shards)))
        # The first shard of each bucket is held out.
        clips, scenes = cache.read(bucket, int(rng.integers(1, shards[bucket])))
        index = np.sort(rng.choice(len(clips), BATCH, replace=False))
        views = _augment(view_clips(clips[index]))
        labels = label_scenes([scenes[i] for i in index])
        with torch.autocast("cpu", torch.bfloat16):
            logits = judge(views)
        losses = [F.cross_entropy(x.float(), labels[:, i]) for i, x in enumerate(logits)]
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * cosine(step / STEPS, 0.02) * min(1.0, (step + 1) / 50)
        optimizer.zero_grad()
        torch.autograd.backward(torch.stack(losses).sum())
        optimizer.step()
        if step % 100 == 99:
            run.log("judge", step=step + 1, loss=float(torch.stack(losses).sum().detach()))
    judge.eval()
    run.log("judge", **{b: judge_accuracy(judge, *cache.read(b, 0)) for b in shards})
    save_judge(judge, run.folder("judge"))
    return True


@torch.no_grad()
def judge_accuracy(judge: Judge, clips: np.ndarray, scenes: list[Scene]) -> dict[str, float]:
    """Share of the clips whose attribute is read as the scene has it."""
    labels = label_scenes(scenes)
    logits = judge(view_clips(clips))
    return {
        name: round(float((x.argmax(-1) == labels[:, i]).float().mean()), 4)
        for i, (name, x) in enumerate(zip(CLASSES, logits, strict=True))
    }


@torch.no_grad()
def read_attributes(judge: Judge, clips: np.ndarray) -> list[dict[str, str | None]]:
    """What the judge sees in each uint8 clip (N, F, H, W, 3); None where there is no sign."""
    indices = [x.argmax(-1).tolist() for x in judge(view_clips(clips))]
    read = []
    for row in zip(*indices, strict=True):
        names = {name: CLASSES[name][i] for name, i in zip(CLASSES, row, strict=True)}
        read.append({name: None if value == "none" else value for name, value in names.items()})
    return read


def save_judge(judge: Judge, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    state = {k: v.half() if v.is_floating_point() else v for k, v in judge.state_dict().items()}
    save_file(state, folder / "judge.safetensors")


def load_judge(folder: Path) -> Judge:
    """The judge of a run folder or of the shipped checkpoint."""
    path = folder / "judge.safetensors"
    if not path.exists():
        raise FileNotFoundError(f"no judge at {path}; train it: --stage judge")
    judge = Judge()
    judge.load_state_dict(
        {k: v.float() if v.is_floating_point() else v for k, v in load_file(path).items()}
    )
    return judge.eval()
