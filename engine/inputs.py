"""The check of what a request gives a model besides its prompt; no torch, no file is opened."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from engine.errors import InvalidRequest
from engine.models.spec import Guidance, ModelSpec, TaskInputs
from engine.types import GenerationRequest

MAX_LORAS: Final = 4
MAX_LORA_WEIGHT: Final = 4.0


def validate(spec: ModelSpec, request: GenerationRequest, models: Iterable[ModelSpec]) -> None:
    """Raise InvalidRequest for the first input that the model's task does not read, or lacks.

    The message names those of `models` that can what this one cannot.
    """
    task = request.settings.task
    inputs = spec.inputs_of(task)

    def refuse(field: str, what: str, can: Callable[[TaskInputs], bool]) -> None:
        able = [
            f"{other.model_id} ({each})"
            for other in models
            for each in other.tasks
            if can(other.inputs_of(each))
        ]
        others = f"these do: {', '.join(able)}" if able else "no model does"
        raise InvalidRequest(field, f"{spec.model_id} reads no {what} for {task}; {others}.")

    _validate_references(request, inputs)
    if request.last_frame is not None and not inputs.takes_last_frame:
        refuse("last_frame", "last frame", lambda each: each.takes_last_frame)
    if request.mask is not None and not inputs.needs_mask:
        refuse("mask", "mask", lambda each: each.needs_mask)
    if request.mask is None and inputs.needs_mask:
        raise InvalidRequest(
            "mask", f"{spec.model_id} paints into a picture: give a mask, white where it paints."
        )
    if request.strength is not None and inputs.default_strength is None:
        refuse("strength", "strength", lambda each: each.default_strength is not None)
    _validate_strength(request)
    if request.negative_prompt and spec.guidance is not Guidance.CLASSIFIER_FREE:
        able = [each.model_id for each in models if each.guidance is Guidance.CLASSIFIER_FREE]
        raise InvalidRequest(
            "negative_prompt",
            f"{spec.model_id} reads no negative prompt; these do: {', '.join(able)}.",
        )
    _validate_loras(request)


def _validate_references(request: GenerationRequest, inputs: TaskInputs) -> None:
    count, lowest, highest = len(request.references), inputs.min_references, inputs.max_references
    if not lowest <= count <= highest:
        wanted = str(lowest) if lowest == highest else f"{lowest} to {highest}"
        raise InvalidRequest(
            "references",
            f"{request.settings.task} reads {wanted} reference image(s), {count} given.",
        )


def _validate_strength(request: GenerationRequest) -> None:
    strength = request.strength
    if strength is not None and not (math.isfinite(strength) and 0 < strength <= 1):
        raise InvalidRequest("strength", f"strength is {strength}; choose above 0 up to 1.")


def _validate_loras(request: GenerationRequest) -> None:
    if len(request.loras) > MAX_LORAS:
        raise InvalidRequest(
            "loras", f"{len(request.loras)} LoRAs were given; {MAX_LORAS} at most go together."
        )
    seen: set[Path] = set()
    for lora in request.loras:
        if lora.path.suffix != ".safetensors":
            raise InvalidRequest(
                "loras", f"The LoRA {lora.path} is no .safetensors file; give one of that format."
            )
        if lora.path in seen:
            raise InvalidRequest("loras", f"The LoRA {lora.path} was given twice.")
        seen.add(lora.path)
        if not math.isfinite(lora.weight) or abs(lora.weight) > MAX_LORA_WEIGHT:
            raise InvalidRequest(
                "loras",
                f"The LoRA {lora.path.name} has the weight {lora.weight};"
                f" choose -{MAX_LORA_WEIGHT:g} to {MAX_LORA_WEIGHT:g}.",
            )
