"""What the campaign form offers: kinds, the values that a model knows, modes, qualities."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from app.models import ExpansionMode, ParameterKind
from engine.tiny import vocabulary
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
    (ExpansionMode.SAMPLED, "A sample", "So many of the combinations, picked at random."),
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
    (QualityProfile.DRAFT, "Draft", "Shares most: a quick look, not for publishing."),
)

_SPELLINGS: Final = MappingProxyType({"color": "colour", "time_of_day": "time"})
_BY_KIND: Final = MappingProxyType(
    {
        ParameterKind.GEOGRAPHY: "geography",
        ParameterKind.AUDIENCE: "audience",
        ParameterKind.BACKDROP: "backdrop",
    }
)


def preset_values(model_id: str, name: str, kind: str) -> tuple[str, ...]:
    """Values that this model shows well for a placeholder, in words to put into a prompt.

    Models without a vocabulary of their own take any words, so there is nothing to offer.
    """
    if model_id != "adloom-tiny":
        return ()
    attribute = _SPELLINGS.get(name, name)
    if attribute not in vocabulary.ATTRIBUTES:
        attribute = _BY_KIND.get(ParameterKind(kind), "")
    if attribute not in vocabulary.ATTRIBUTES:
        return ()
    words = vocabulary.ATTRIBUTES[attribute]
    return tuple(_as_title(attribute, names[0]) for names in words.values())


def _as_title(attribute: str, word: str) -> str:
    if attribute != "geography":
        return word
    return " ".join(part if part == "de" else part.capitalize() for part in word.split())
