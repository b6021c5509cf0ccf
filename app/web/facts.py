"""Render settings and provenance as names and values that people can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.models import Artifact, ExpansionMode, Variant
from app.web.formatting import ago, count, duration, size
from app.web.presets import MODES, PROFILES
from app.web.tiles import in_order
from engine.errors import UnknownModel
from engine.registry import get_model
from engine.types import GenerationTask

Facts = list[tuple[str, str]]

PROFILE_NAMES = {profile: name for profile, name, _ in PROFILES}
MODE_NAMES = {mode: name for mode, name, _ in MODES}


def settings_facts(settings: Mapping[str, Any], *, seed: int | None = None) -> Facts:
    """The fields of `engine.types.RenderSettings` in words."""
    facts: Facts = []
    try:
        spec = get_model(settings["model_id"])
        label = spec.label
        shape = spec.find_size(f"{settings['width']}x{settings['height']}")
    except UnknownModel:
        # A batch outlives its model.
        label, shape = settings["model_id"], None
    pixels = f"{settings['width']} × {settings['height']}"
    facts.append(("Model", label))
    facts.append(("Format", f"{shape.label}, {pixels}" if shape else pixels))
    if GenerationTask(settings["task"]).is_image:
        facts.append(("Output", "Image"))
    else:
        seconds = settings["num_frames"] / settings["fps"]
        facts.append(("Length", f"{seconds:.1f} s at {settings['fps']} frames per second"))
    profile = settings.get("profile", "exact")
    facts.append(("Quality", PROFILE_NAMES.get(profile, profile)))
    steps, draft_step = str(settings["num_inference_steps"]), settings.get("draft_step")
    facts.append(("Steps", f"{draft_step} of {steps}: a draft" if draft_step else steps))
    if seed is not None:
        facts.append(("Seed", str(seed)))
    return facts


def mode_words(mode: ExpansionMode) -> str:
    return MODE_NAMES[mode]


def variant_facts(variant: Variant, names: Iterable[str]) -> Facts:
    """Values in the order of `names`, then the row's own columns."""
    facts: Facts = [(name, str(value)) for name, value in in_order(variant.values, names)]
    if variant.row_id:
        facts.append(("Row", variant.row_id))
    facts += [(name, str(value)) for name, value in variant.passthrough.items() if value]
    return facts


def provenance_facts(artifact: Artifact) -> Facts:
    """How an artifact was made, with what its provenance happens to say."""
    made = artifact.provenance
    facts: Facts = [("Rendered", ago(artifact.created_at))]
    seconds = made.get("seconds")
    if isinstance(seconds, Mapping):
        parts = [f"{name} {duration(value)}" for name, value in seconds.items() if value >= 1]
        total = sum(seconds.values())
        facts.append(("Time", f"{total:.1f} s" + (f" ({', '.join(parts)})" if parts else "")))
    for key, name in (
        ("engine_version", "Engine version"),
        ("weights_fingerprint", "Weights"),
        ("device", "Device"),
    ):
        if made.get(key) not in (None, ""):
            facts.append((name, str(made[key])))
    facts.append(("File", f"{count(artifact.num_frames, 'frame')}, {size(artifact.size_bytes)}"))
    facts.append(("Checksum", f"SHA-256 {artifact.sha256}"))
    return facts
