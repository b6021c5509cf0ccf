"""What a shared edge of the denoising tree is conditioned on; no torch."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from engine.tree import Edge
from engine.types import GenerationRequest, StemConditioning


def conditioning_texts(
    edge: Edge, requests: Mapping[str, GenerationRequest], *, stem: StemConditioning
) -> tuple[str, ...]:
    """The prompts whose mean embedding conditions an edge; a leaf has its own prompt alone."""
    first = requests[edge.members[0]]
    kept = {name for name, _ in edge.fixed}
    if stem is StemConditioning.CONTROL or kept.issuperset(slot.name for slot in first.slots):
        return (first.prompt,)
    if stem is StemConditioning.MEAN_EMBEDDING:
        return tuple(dict.fromkeys(requests[member].prompt for member in edge.members))
    return (without_words(first, keep=kept),)


def without_words(request: GenerationRequest, *, keep: Collection[str]) -> str:
    """The prompt without the words of slots not in `keep`, and without what they leave behind."""
    parts: list[str] = []
    position = 0
    for slot in sorted(request.slots, key=lambda slot: slot.span):
        if slot.name not in keep:
            parts.append(request.prompt[position : slot.span[0]])
            position = slot.span[1]
    if not parts:
        return request.prompt
    text = "".join((*parts, request.prompt[position:]))
    text = re.sub(r"\s+([,.;:!?])", r"\1", text)
    text = re.sub(r"[,;:](?=\s*[,.;:!?])", "", text)
    return " ".join(text.split()).strip(" ,;:")
