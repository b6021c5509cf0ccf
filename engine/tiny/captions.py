"""Captions and prompts in varied wording for the attributes of a scene.

The module needs no numpy: any object with `random`, `choice` and `shuffle` of `random.Random`
draws the wording.
"""

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from engine.tiny import vocabulary

OPENINGS: Final = (
    "",
    "",
    "",
    "",
    "an ad with ",
    "a photo of ",
    "a video of ",
    "product shot of ",
    "commercial for ",
    "close-up of ",
    "hero shot: ",
    "a short clip of ",
)
# How often an attribute is named; the rest of the time the model has to choose it.
NAMED_SHARE: Final = {
    "product": 0.96,
    "colour": 0.95,
    "backdrop": 0.92,
    "time": 0.80,
    "geography": 0.92,
    "audience": 0.90,
    "motion": 0.80,
}
# Values of the backdrop that take no article.
WITHOUT_ARTICLE: Final = frozenset({"mountains", "snow", "sand dunes", "dunes", "downtown street"})


# Brief-speak that changes nothing in the picture.
FILLERS: Final = (
    "cinematic",
    "minimal style",
    "summer collection",
    "new arrival",
    "limited edition",
    "high quality",
    "lifestyle",
    "premium look",
    "soft light",
    "our best seller",
    "free shipping",
    "back to school",
    "spring sale",
    "bold and fresh",
    "sharp focus",
    "4k",
    "shallow depth of field",
    "brand campaign",
    "social media",
    "holiday offer",
    "sustainable",
    "everyday comfort",
)
# Values people may ask for that the model cannot show; it must learn to pass over them.
UNKNOWN: Final = MappingProxyType(
    {
        "product": ("chair", "watch", "guitar", "lamp", "phone", "perfume", "bicycle", "jacket"),
        "colour": ("grey", "beige", "teal", "striped", "golden", "transparent", "shiny"),
        "backdrop": ("rooftop", "kitchen", "stadium", "library", "garden", "space", "harbour"),
        "time": ("rainy", "foggy", "afternoon", "autumn", "spring"),
        "geography": ("berlin", "madrid", "toronto", "mumbai", "lagos", "seoul", "rome", "dubai"),
        "audience": ("students", "dads", "dog owners", "chefs", "retirees", "teens", "dancers"),
        "motion": ("drone shot", "handheld", "spinning", "slow motion", "timelapse"),
    }
)
UNKNOWN_SHARE: Final = 0.03
FILLER_SHARE: Final = 0.2


def article(noun: str) -> str:
    """The noun with its indefinite article."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _word(rng: random.Random, attribute: str, value: str) -> str:
    """One of the value's words, the first most often; a value not listed stands for itself."""
    words = vocabulary.ATTRIBUTES[attribute].get(value, (value,))
    return words[0] if rng.random() < 0.5 else rng.choice(words)


def _subject(rng: random.Random, named: Mapping[str, str]) -> str:
    noun = _word(rng, "product", named["product"]) if "product" in named else "product"
    colour = _word(rng, "colour", named["colour"]) + " " if "colour" in named else ""
    subject = colour + noun
    # People fill templates such as "a {{ colour }} {{ product }}", plural or not.
    is_plural = noun.endswith("headphones") and not noun.startswith("pair")
    if rng.random() < (0.6 if is_plural else 0.15):
        return subject
    return f"the {subject}" if rng.random() < 0.1 else article(subject)


def _backdrop(rng: random.Random, word: str) -> str:
    bare = word if word in WITHOUT_ARTICLE else rng.choice((word, article(word), f"the {word}"))
    preposition = rng.choice(("in", "on", "at", "in front of", "", "with", "backdrop:"))
    return f"{preposition} {bare}".strip()


def _time(rng: random.Random, word: str) -> str:
    return rng.choice((word, f"at {word}", f"{word} light", f"in the {word}", f"{word} scene"))


def _geography(rng: random.Random, word: str) -> str:
    return rng.choice((word, word, f"in {word}", f"near {word}", f"{word} in the background"))


def _audience(rng: random.Random, word: str) -> str:
    return rng.choice((f"for {word}", f"for {word}", f"made for {word}", f"aimed at {word}", word))


def _motion(rng: random.Random, word: str) -> str:
    return rng.choice(
        (word, word, f"the {word}" if word.split()[0] in ("camera", "product") else word)
    )


CLAUSES: Final = {
    "backdrop": _backdrop,
    "time": _time,
    "geography": _geography,
    "audience": _audience,
    "motion": _motion,
}


def _choose_named(attributes: Mapping[str, str | None], rng: random.Random) -> dict[str, str]:
    """Leave attributes out as in `NAMED_SHARE`; replace a few by values nobody can show."""
    named: dict[str, str] = {}
    for name, value in attributes.items():
        if rng.random() < UNKNOWN_SHARE:
            named[name] = rng.choice(UNKNOWN[name])
        elif value is not None and rng.random() < NAMED_SHARE[name]:
            named[name] = value
    return named


def phrase(named: Mapping[str, str], rng: random.Random) -> str:
    """Word the named values as one prompt."""
    clauses = [
        build(rng, _word(rng, name, named[name]))
        for name, build in CLAUSES.items()
        if name in named
    ]
    if rng.random() < FILLER_SHARE:
        clauses.append(rng.choice(FILLERS))
    if rng.random() < 0.5:
        rng.shuffle(clauses)
    subject = _subject(rng, named)
    if clauses and rng.random() < 0.6:
        # "a red sneaker on a beach, paris, for runners": the first clause needs no comma.
        subject, *clauses = [f"{subject} {clauses[0]}", *clauses[1:]]
    pieces = [*clauses, subject] if rng.random() < 0.08 else [subject, *clauses]
    return rng.choice(OPENINGS) + ", ".join(pieces)


def caption(attributes: Mapping[str, str | None], rng: random.Random) -> tuple[str, dict[str, str]]:
    """A caption of a scene, and the values it names that the scene shows."""
    named = _choose_named(attributes, rng)
    shown = {name: value for name, value in named.items() if attributes[name] == value}
    return phrase(named, rng), shown
