"""The frozen inputs of a batch: parameters, mode, settings and seeds, as kept in `Batch.spec`."""

from __future__ import annotations

import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.errors import InvalidInput
from app.models import ExpansionMode, ParameterKind
from engine import registry
from engine.errors import InvalidRequest
from engine.types import GenerationTask, QualityProfile, RenderSettings

# Variants are written, planned and priced in chunks of this many: the quote and the expansion
# see the same partition.
CHUNK_SIZE = 5_000
# Most variants in a group that one worker claims.
MAX_GROUP = 64
# The same where each has a stored state, which its worker holds in memory.
MAX_DRAFTED_GROUP = 16
MAX_TAKES = 100
# As JSON: it goes along with every event about the batch.
MAX_PASSTHROUGH_LENGTH = 2_000


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SpecParameter(_Frozen):
    """A placeholder with its values: typed ones, or a column of the upload."""

    name: str = Field(min_length=1, max_length=64)
    kind: ParameterKind
    values: tuple[str, ...] = ()
    column: str | None = None


class SpecSettings(_Frozen):
    """The render settings of a batch; parameters of kind size or duration change them per row."""

    model_id: str
    task: GenerationTask
    width: int
    height: int
    num_frames: int
    fps: int
    num_inference_steps: int
    guidance_scale: float
    profile: QualityProfile = QualityProfile.CONSISTENT
    # Of drafts: the step after which they stop.
    draft_step: int | None = None

    def to_render_settings(self) -> RenderSettings:
        return RenderSettings(**dict(self))


class VariantOrigin(_Frozen):
    """The variant that a batch of one renders again, with what its row is known by."""

    variant_id: str
    row_id: str | None = None
    passthrough: dict[str, str] = Field(default_factory=dict)


class BatchSpec(_Frozen):
    """Everything that decides what a batch expands into, except the prompt and the upload.

    `takes` renders every combination that many times, with the seeds seed, seed + 1, …; rows
    whose `seed_column` holds a number use that one instead.
    """

    parameters: tuple[SpecParameter, ...]
    mode: ExpansionMode
    settings: SpecSettings
    seed: int = Field(default=0, ge=0, le=registry.MAX_SEED - MAX_TAKES)
    takes: int = Field(default=1, ge=1, le=MAX_TAKES)
    sample_size: int | None = Field(default=None, ge=1)
    sample_seed: int = Field(default=0, ge=0)
    # A part of the combinations: those from this one on, counted from 0, and at most so many.
    first_combination: int = Field(default=0, ge=0)
    combination_limit: int | None = Field(default=None, ge=1)
    force_render: bool = False
    # Columns of the upload that name the row, and its seed.
    row_id_column: str | None = None
    seed_column: str | None = None
    # Rows of the upload; None when the values are typed.
    row_count: int | None = Field(default=None, ge=0)
    # The caller's own names and numbers, handed back with every event about the batch.
    passthrough: dict[str, str] = Field(default_factory=dict)
    # Prompts of this batch alone, in place of the campaign's.
    prompt: str | None = None
    negative_prompt: str = ""
    origin: VariantOrigin | None = None
    # The batch of drafts that this one finishes.
    drafts_batch_id: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [parameter.name for parameter in self.parameters]
        if len(set(names)) < len(names):
            raise ValueError("two parameters have the same name")
        if len(json.dumps(self.passthrough)) > MAX_PASSTHROUGH_LENGTH:
            raise ValueError(
                f"passthrough is longer than {MAX_PASSTHROUGH_LENGTH:,} characters of JSON"
            )
        if (self.mode is ExpansionMode.SAMPLED) != (self.sample_size is not None):
            raise ValueError("sample_size belongs to the mode “sampled”, and only there")
        return self

    def to_json(self) -> dict[str, Any]:
        """What is stored; `BatchSpec.model_validate` reads it."""
        return self.model_dump(mode="json")

    def choose_prompts(self, text: str, negative_text: str) -> tuple[str, str]:
        """The batch's own prompt and negative prompt, or else the campaign's, as given."""
        return (text, negative_text) if self.prompt is None else (self.prompt, self.negative_prompt)

    @property
    def typed_values(self) -> dict[str, tuple[str, ...]]:
        """Values by parameter; one without any is an optional placeholder that stays empty."""
        return {item.name: item.values for item in self.parameters if item.values}

    @property
    def columns(self) -> dict[str, str]:
        """The upload's column for each parameter that is read from it."""
        return {item.name: item.column for item in self.parameters if item.column is not None}


def check_settings(spec: BatchSpec) -> None:
    """Raise InvalidInput, naming the setting, unless the model can render with these."""
    try:
        registry.validate(spec.settings.to_render_settings())
    except InvalidRequest as error:
        raise InvalidInput(str(error), field=error.field) from error
