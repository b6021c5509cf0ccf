"""What the campaign form offers: kinds, placeholders, modes, outputs, qualities."""

from __future__ import annotations

from typing import Final

from app.models import ExpansionMode, ParameterKind
from engine.types import GenerationTask, QualityProfile

KINDS: Final = (
    (ParameterKind.GEOGRAPHY, "Geography"),
    (ParameterKind.AUDIENCE, "Audience"),
    (ParameterKind.BACKDROP, "Backdrop"),
    (ParameterKind.TEXT, "Text"),
    (ParameterKind.CHOICE, "Choice"),
)
# Buttons below the prompt: a placeholder's name and its kind.
SUGGESTIONS: Final = (
    ("backdrop", ParameterKind.BACKDROP),
    ("geography", ParameterKind.GEOGRAPHY),
    ("audience", ParameterKind.AUDIENCE),
    ("product", ParameterKind.CHOICE),
    ("colour", ParameterKind.CHOICE),
    ("time", ParameterKind.CHOICE),
)
MODES: Final = (
    (ExpansionMode.CARTESIAN, "Every combination", "Each value with each other value."),
    (ExpansionMode.ZIP, "Line by line", "First with first, second with second."),
    (ExpansionMode.SAMPLED, "A sample", "As many combinations as you say, picked at random."),
)
TASKS: Final = (
    (GenerationTask.T2V, "Video", "A short clip, ready to play."),
    (GenerationTask.T2I, "Image", "One still picture, quicker and cheaper."),
)
PROFILES: Final = (
    (QualityProfile.CONSISTENT, "Consistent", "Variants stay alike where nothing should change."),
    (QualityProfile.FAITHFUL, "Faithful", "Each one very close to how it looks rendered alone."),
    (QualityProfile.EXACT, "Exact", "Each one rendered alone, nothing shared; the full price."),
    (QualityProfile.FAST, "Fast", "Shares more steps: details may differ, the idea does not."),
    (QualityProfile.DRAFT, "Rough", "Shares most: a quick look, not for publishing."),
)
