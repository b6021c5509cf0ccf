"""Render settings from what a caller leaves open: the model's recommendation, or earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from app.errors import InvalidInput
from engine import registry
from engine.errors import InvalidRequest
from engine.types import QualityProfile, RenderSettings

DEFAULT_MODEL = "adloom-tiny"


def complete_settings(
    given: Mapping[str, Any], *, base: Mapping[str, Any] | None = None
) -> RenderSettings:
    """Settings with `given` (names of RenderSettings, and `size`) over `base`.

    Without a base, or with another model or task, the model's own recommendation is the base.
    InvalidInput names the setting that the model cannot use.
    """
    try:
        settings = _complete(given, base)
        registry.validate(settings)
    except InvalidRequest as error:
        raise InvalidInput(str(error), field=error.field) from None
    return settings


def _complete(given: Mapping[str, Any], base: Mapping[str, Any] | None) -> RenderSettings:
    wanted = {name: value for name, value in given.items() if value is not None}
    start = _start(wanted, base)
    size_name = wanted.pop("size", None)
    if size_name is not None:
        model = registry.get_model(start.model_id)
        size = model.find_size(size_name)
        if size is None:
            offered = ", ".join(f"{item.label} ({item})" for item in model.sizes)
            raise InvalidInput(
                f"{size_name!r} is no size of {model.label}; choose {offered}.", field="size"
            )
        wanted |= {"width": size.width, "height": size.height}
    return replace(start, **wanted)


def _start(wanted: Mapping[str, Any], base: Mapping[str, Any] | None) -> RenderSettings:
    names = {item.name for item in fields(RenderSettings)}
    if base is not None:
        kept = RenderSettings.from_dict({k: v for k, v in base.items() if k in names})
        model_id = wanted.get("model_id", kept.model_id)
        if (model_id, wanted.get("task", kept.task)) == (kept.model_id, kept.task):
            return kept
    else:
        model_id = wanted.get("model_id", DEFAULT_MODEL)
    return registry.default_settings(
        model_id, task=wanted.get("task"), profile=QualityProfile.CONSISTENT
    )
