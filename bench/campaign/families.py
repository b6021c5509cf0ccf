"""The campaign's prompts: base scenes, and families of variants from the built-in model's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from engine.registry import default_settings
from engine.tiny.vocabulary import ATTRIBUTES
from engine.types import GenerationRequest, PromptSlot, QualityProfile

MODEL_ID = "adloom-tiny"
PARAMETERS = ("backdrop", "geography", "audience")
SEEDS = (11, 12, 13)


@dataclass(frozen=True, kw_only=True)
class Base:
    """A prompt template, and the values of parameters that a family leaves as they are."""

    template: str
    values: Mapping[str, str]


BASES = (
    Base(
        template="a red sneaker, {backdrop}, {geography}, for {audience}, noon, static camera",
        values={"backdrop": "beach", "geography": "paris", "audience": "runners"},
    ),
    Base(
        template="a blue mug, {backdrop}, {geography}, for {audience}, sunset, camera pans left",
        values={"backdrop": "studio", "geography": "london", "audience": "families"},
    ),
    Base(
        template="a yellow car, {backdrop}, {geography}, for {audience}, morning, camera pushes in",
        values={"backdrop": "desert", "geography": "cairo", "audience": "gamers"},
    ),
)


@dataclass(frozen=True, kw_only=True)
class Family:
    """`size` variants of one base with one seed; `varying` is one parameter or all ("three").

    `place` and `seed_place` choose among the bases and the seeds.
    """

    varying: str
    size: int
    place: int = 0
    seed_place: int = 0

    @property
    def key(self) -> str:
        return f"{self.varying}-{self.size}-base{self.place}-seed{self.seed_place}"

    @property
    def parameters(self) -> tuple[str, ...]:
        return PARAMETERS if self.varying == "three" else (self.varying,)

    def requests(self, profile: QualityProfile) -> list[GenerationRequest]:
        """The variants' requests; ids say their values, the first one is the control."""
        base, seed = BASES[self.place], SEEDS[self.seed_place]
        settings = default_settings(MODEL_ID, profile=profile)
        requests = []
        for words in self._words():
            prompt, slots = _fill(base.template, {**base.values, **words}, self.parameters)
            requests.append(
                GenerationRequest(
                    request_id="/".join(words.values()),
                    prompt=prompt,
                    seed=seed,
                    settings=settings,
                    slots=slots,
                )
            )
        return requests

    def wanted(self) -> list[dict[str, str]]:
        """For each variant the values that a judge should read, by attribute."""
        return [
            {name: _value(name, word) for name, word in words.items()} for words in self._words()
        ]

    def _words(self) -> Iterator[dict[str, str]]:
        is_single = self.varying != "three"
        counts = {self.varying: self.size} if is_single else _split(self.size)
        words = [_all_words(name)[:count] for name, count in counts.items()]
        for combination in product(*words):
            yield dict(zip(counts, combination, strict=True))


def _split(size: int) -> dict[str, int]:
    """How many values each parameter has: as even as divisors of the size allow."""
    options = [
        (a, b, size // (a * b))
        for a in range(1, size + 1)
        for b in range(1, size + 1)
        if size % (a * b) == 0
    ]
    best = min(options, key=lambda counts: (max(counts), counts))
    return dict(zip(PARAMETERS, sorted(best, reverse=True), strict=True))


def _all_words(name: str) -> list[str]:
    """Words for the parameter's values: one for each value first, then their synonyms."""
    values = ATTRIBUTES[name].values()
    return [words[rank] for rank in range(3) for words in values]


def _value(name: str, word: str) -> str:
    return next(value for value, words in ATTRIBUTES[name].items() if word in words)


def _fill(
    template: str, values: Mapping[str, str], varying: tuple[str, ...]
) -> tuple[str, tuple[PromptSlot, ...]]:
    prompt, slots = "", []
    for part in re.split(r"(\{\w+\})", template):
        name = part[1:-1]
        if not part.startswith("{"):
            prompt += part
            continue
        span = (len(prompt), len(prompt) + len(values[name]))
        prompt += values[name]
        if name in varying:
            slots.append(PromptSlot(name=name, kind=name, value=values[name], span=span))
    return prompt, tuple(slots)
