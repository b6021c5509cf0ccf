"""What a shared edge of the denoising tree is conditioned on; no torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from engine.tree import Edge
from engine.types import GenerationRequest, PromptSlot, StemConditioning


@dataclass(frozen=True, kw_only=True, slots=True)
class Stems:
    """The stem conditioning of each parameter kind, and of the kinds that were not measured."""

    default: StemConditioning
    by_kind: Mapping[str, StemConditioning] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, slot: PromptSlot) -> StemConditioning:
        return self.by_kind.get(slot.kind, self.default)


def conditioning_texts(
    edge: Edge, requests: Mapping[str, GenerationRequest], *, stems: Stems
) -> tuple[str, ...]:
    """The prompts whose mean embedding conditions an edge; a leaf has its own prompt alone.

    Each slot that the edge leaves open goes by its own kind: its words are removed, or the first
    member's, or there is one prompt for each of the members' values.
    """
    first = requests[edge.members[0]]
    kept = {name for name, _ in edge.fixed}
    open_stems = {slot.name: stems.of(slot) for slot in first.slots if slot.name not in kept}
    has_mean = StemConditioning.MEAN_EMBEDDING in open_stems.values()
    members = edge.members if has_mean else edge.members[:1]
    texts = (_text(requests[member], first, open_stems) for member in members)
    return tuple(dict.fromkeys(texts))


def without_words(request: GenerationRequest, *, keep: Collection[str]) -> str:
    """The prompt without the words of slots not in `keep`, and without what they leave behind."""
    return _reworded(
        request,
        [slot.value if slot.name in keep else None for slot in _in_order(request)],
    )


def with_values(request: GenerationRequest, values: Mapping[str, str]) -> GenerationRequest:
    """The request with other values in the slots that are named; the spans follow."""
    prompt = ""
    position = 0
    slots: list[PromptSlot] = []
    for slot in _in_order(request):
        prompt += request.prompt[position : slot.span[0]]
        value = values.get(slot.name, slot.value)
        span = (len(prompt), len(prompt) + len(value))
        slots.append(replace(slot, value=value, span=span))
        prompt += value
        position = slot.span[1]
    return replace(request, prompt=prompt + request.prompt[position:], slots=tuple(slots))


def _text(
    request: GenerationRequest, control: GenerationRequest, stems: Mapping[str, StemConditioning]
) -> str:
    """One member's prompt, with the slots in `stems` as they say."""
    words: list[str | None] = []
    for slot, control_slot in zip(_in_order(request), _in_order(control), strict=True):
        stem = stems.get(slot.name)
        if stem is StemConditioning.WORDS_REMOVED:
            words.append(None)
        else:
            words.append(control_slot.value if stem is StemConditioning.CONTROL else slot.value)
    return _reworded(request, words)


def _in_order(request: GenerationRequest) -> list[PromptSlot]:
    return sorted(request.slots, key=lambda slot: slot.span)


def _reworded(request: GenerationRequest, words: list[str | None]) -> str:
    """The prompt with these words in its slots, in their order; None removes a slot's words."""
    parts: list[str] = []
    position = 0
    for slot, word in zip(_in_order(request), words, strict=True):
        parts += (request.prompt[position : slot.span[0]], word or "")
        position = slot.span[1]
    text = "".join((*parts, request.prompt[position:]))
    if None not in words:
        return text
    text = re.sub(r"\s+([,.;:!?])", r"\1", text)
    text = re.sub(r"[,;:](?=\s*[,.;:!?])", "", text)
    return " ".join(text.split()).strip(" ,;:")
