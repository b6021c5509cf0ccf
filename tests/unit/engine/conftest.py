"""Requests, settings and a small random checkpoint for the engine's tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.registry import default_settings
from engine.types import GenerationRequest, GenerationTask, RenderSettings

if TYPE_CHECKING:
    from engine.engine import Engine

MakeRequest = Callable[..., GenerationRequest]


@pytest.fixture(scope="session")
def model_dir() -> Path:
    # Local import: most tests here need no torch.
    from tests.checkpoints import random_model_dir

    return random_model_dir()


def small_settings(**changes: Any) -> RenderSettings:
    """Two steps of five frames; half a second with the random checkpoint at most."""
    task = changes.pop("task", GenerationTask.T2V)
    frames = 1 if task.is_image else 5
    settings = replace(
        default_settings("adloom-tiny", task=task), num_frames=frames, num_inference_steps=2
    )
    return replace(settings, **changes)


@pytest.fixture
def make_request() -> MakeRequest:
    """Builds requests with ids r0, r1, ...; keywords of the settings go to the settings."""
    count = 0

    def make(prompt: str = "a red sneaker on a beach", **changes: Any) -> GenerationRequest:
        nonlocal count
        names = RenderSettings.__dataclass_fields__
        settings = {name: changes.pop(name) for name in list(changes) if name in names}
        request = GenerationRequest(
            request_id=f"r{count}",
            prompt=prompt,
            seed=changes.pop("seed", 7),
            settings=changes.pop("settings", None) or small_settings(**settings),
        )
        count += 1
        return replace(request, **changes)

    return make


@pytest.fixture(scope="module")
def make_engine(model_dir: Path) -> Callable[..., Engine]:
    """Engines that keep nothing from test to test, unless the limit says so."""

    # Local imports: most tests here need no torch.
    from engine.config import EngineConfig
    from engine.engine import Engine

    def make(**changes: Any) -> Engine:
        known: dict[str, Any] = {
            "model_dir": model_dir,
            "device": "cpu",
            "cache_bytes": 0,
            "guard_every": 0,
            "fast_math": False,
        }
        return Engine(EngineConfig(**(known | changes)))

    return make


@pytest.fixture(scope="module")
def one_by_one(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine(batch_size=1)


@pytest.fixture(scope="module")
def batched(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine(batch_size=4)
