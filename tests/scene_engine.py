"""A stand-in for a GPU that paints the scene a prompt names, so that pages show real pictures."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from engine.tiny import vocabulary
from engine.tiny.scenes import Scene, render
from engine.types import GenerationRequest
from tests.engines import NullEngine

PLAIN = {
    "product": "sneaker",
    "colour": "red",
    "backdrop": "studio",
    "time": "noon",
    "geography": None,
    "audience": None,
    "motion": "push in",
}


@dataclass
class SceneEngine(NullEngine):
    """Renders the procedural scenes that the built-in model is trained on."""

    def frames(self, request: GenerationRequest) -> np.ndarray:
        settings = request.settings
        clip = render(
            scene_of(request.prompt),
            height=settings.height,
            width=settings.width,
            seed=request.seed,
            num_frames=settings.num_frames,
        )
        return clip.numpy()


def scene_of(prompt: str) -> Scene:
    """The scene whose words stand in a prompt; what it does not name is plain."""
    text = prompt.lower()
    found: dict[str, str | None] = dict(PLAIN)
    for attribute, values in vocabulary.ATTRIBUTES.items():
        for value, words in values.items():
            if any(re.search(rf"\b{re.escape(word)}\b", text) for word in words):
                found[attribute] = value
    return Scene(**found)  # type: ignore[arg-type]
