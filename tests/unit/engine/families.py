"""Families of variants from one template, for tests of the tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.types import GenerationRequest, PromptSlot, QualityProfile
from tests.unit.engine.conftest import small_settings

KINDS = {"backdrop": "backdrop", "audience": "audience", "place": "geography"}
STEPS = 10


def variant(
    backdrop: str, audience: str = "runners", place: str = "Paris", **changes: Any
) -> GenerationRequest:
    """ "a red sneaker on {backdrop}, for {audience}, {place}"; the values make the request's id."""
    values = {"backdrop": backdrop, "audience": audience, "place": place}
    prompt, slots = "a red sneaker on ", []
    for name, glue in (("backdrop", ", for "), ("audience", ", "), ("place", "")):
        start = len(prompt)
        prompt += values[name]
        slots.append(
            PromptSlot(name=name, kind=KINDS[name], value=values[name], span=(start, len(prompt)))
        )
        prompt += glue
    settings = changes.pop("settings", None) or small_settings(
        num_inference_steps=changes.pop("steps", STEPS),
        profile=changes.pop("profile", QualityProfile.CONSISTENT),
    )
    request = GenerationRequest(
        request_id=changes.pop("request_id", f"{backdrop}/{audience}/{place}"),
        prompt=prompt,
        seed=7,
        settings=settings,
        slots=tuple(slots),
    )
    return replace(request, **changes)


def forked(request: GenerationRequest, **forks: int) -> GenerationRequest:
    """The request with these fork steps; slots that are not named fork at the first step."""
    return replace(
        request,
        slots=tuple(replace(slot, fork_step=forks.get(slot.name, 0)) for slot in request.slots),
    )
