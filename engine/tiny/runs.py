"""What the training stages share: the run folder, averaged weights and schedules."""

import json
import math
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

CHECKPOINT_INTERVAL_S = 600


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Everything a run keeps: states, caches, logs and sample sheets."""

    root: Path

    def folder(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def state_path(self, stage: str) -> Path:
        return self.folder("state") / f"{stage}.pt"

    def save(self, stage: str, state: dict[str, Any]) -> None:
        """Write a state beside the old one, then replace it, so that a kill loses nothing."""
        path = self.state_path(stage)
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def load(self, stage: str) -> dict[str, Any] | None:
        """The stage's last state, or None when it has not begun."""
        path = self.state_path(stage)
        if not path.exists():
            return None
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return state

    def log(self, stage: str, **values: Any) -> None:
        """Append one line to the stage's log and print it."""
        line = json.dumps({"stage": stage, "time": round(time.time(), 1), **values})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        with (self.folder("logs") / f"{stage}.jsonl").open("a") as file:
            file.write(line + "\n")


class Average:
    """Exponential moving average of parameters, faster at the start."""

    def __init__(self, module: nn.Module, decay: float, count: int = 0) -> None:
        self.decay = decay
        self.count = count
        self.weights = {k: v.detach().clone() for k, v in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        self.count += 1
        decay = min(self.decay, (1 + self.count) / (10 + self.count))
        for key, value in module.state_dict().items():
            self.weights[key].lerp_(value, 1 - decay)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self.weights = state["weights"]


class Timer:
    """Says when the next checkpoint is due and when to stop: the time is up, or SIGTERM came."""

    def __init__(self, minutes: float | None) -> None:
        self.is_stopped = False
        signal.signal(signal.SIGTERM, self._stop)
        self.start = time.monotonic()
        self.last = self.start
        self.limit_s = math.inf if minutes is None else minutes * 60

    def _stop(self, *_: object) -> None:
        self.is_stopped = True

    def is_checkpoint_due(self) -> bool:
        if time.monotonic() - self.last < CHECKPOINT_INTERVAL_S:
            return False
        self.last = time.monotonic()
        return True

    def is_over(self) -> bool:
        return self.is_stopped or time.monotonic() - self.start > self.limit_s


def set_rate(optimizers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """Scale every learning rate from its base value."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            base = group.setdefault("base_lr", group["lr"])
            group["lr"] = base * factor


def cosine(progress: float, floor: float = 0.05) -> float:
    """Cosine decay from 1 to `floor` as progress goes from 0 to 1."""
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def to_model_range(clips: Tensor) -> Tensor:
    """uint8 (..., F, H, W, 3) to float (..., 3, F, H, W) in [-1, 1]."""
    return clips.movedim(-1, -4).float().div_(127.5).sub_(1)
