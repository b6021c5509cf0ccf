"""The workspace behind a key, what it used, and the models it may use."""

from __future__ import annotations

from datetime import date
from typing import Self

from pydantic import Field

from app.access import Action, Role
from app.api.schemas.base import Id, Input, Output
from app.services.usage import DayUsage
from engine import registry
from engine.registry import ModelSpec
from engine.types import GenerationTask, QualityProfile
from engine.units import clip_units


class Account(Output):
    """Whose key this is and what it may do."""

    workspace_id: Id
    workspace_name: str
    api_key_id: Id
    role: Role
    scopes: list[Action]
    currency: str
    max_variants_per_batch: int
    requests_per_minute: int


class UsageQuery(Input):
    """Days in UTC, both included; the last 30 without them."""

    since: date | None = None
    until: date | None = None


class UsageDay(Output):
    day: date
    renders: int
    reused: int
    units: float
    cost_micros: int
    render_s: float

    @classmethod
    def of(cls, usage: DayUsage) -> Self:
        return cls(**{name: getattr(usage, name) for name in cls.model_fields})


class UsageReport(Output):
    since: date
    until: date
    currency: str
    renders: int
    cost_micros: int
    days: list[UsageDay]


class ModelSize(Output):
    label: str
    width: int
    height: int


class ModelPrice(Output):
    """What one render alone costs by the recommended settings; variants together cost less."""

    task: GenerationTask
    size: str
    units: float
    cost_micros: int


class Model(Output):
    """What a model can do. `num_frames` is `frame_stride` × k + 1, within the limits."""

    model_id: str
    label: str
    licence: str
    # Whether this machine has its weights; others cannot be rendered with here.
    is_installed: bool
    tasks: list[GenerationTask]
    profiles: list[QualityProfile]
    sizes: list[ModelSize]
    fps: int
    frame_stride: int
    min_frames: int
    default_frames: int
    max_frames: int
    default_steps: int
    default_guidance: float
    max_prompt_tokens: int
    prices: list[ModelPrice]

    @classmethod
    def of(cls, spec: ModelSpec, *, rate_micros_per_unit: int) -> Self:
        prices = []
        for task in spec.tasks:
            for size in spec.sizes:
                settings = registry.default_settings(spec.model_id, task=task, size=size)
                units = clip_units(settings)
                prices.append(
                    ModelPrice(
                        task=task,
                        size=size.label,
                        units=units,
                        cost_micros=round(units * rate_micros_per_unit),
                    )
                )
        return cls(
            model_id=spec.model_id,
            label=spec.label,
            licence=spec.licence,
            is_installed=registry.is_installed(spec.model_id),
            tasks=list(spec.tasks),
            profiles=list(QualityProfile),
            sizes=[
                ModelSize(label=size.label, width=size.width, height=size.height)
                for size in spec.sizes
            ],
            fps=spec.fps,
            frame_stride=spec.frame_stride,
            min_frames=spec.min_frames,
            default_frames=spec.default_frames,
            max_frames=spec.max_frames,
            default_steps=spec.default_steps,
            default_guidance=spec.default_guidance,
            max_prompt_tokens=spec.max_prompt_tokens,
            prices=prices,
        )


class ModelList(Output):
    currency: str
    data: list[Model] = Field(description="All models; there are few.")
