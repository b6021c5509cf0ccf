"""The frozen inputs of a batch: parameters, mode, settings and seeds, as kept in `Batch.spec`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.errors import InvalidInput
from app.models import ExpansionMode, ParameterKind
from app.services.value_rules import MAX_RULES, Forbidden, RuledValues
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


class SpecRule(_Frozen):
    """Which values do not go together, by parameter.

    A combination that has one of each of `when` must not have one of each of `never`, or must
    have one of each of `only`.
    """

    when: dict[str, tuple[str, ...]] = Field(min_length=1)
    never: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    only: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.never) == bool(self.only):
            raise ValueError("a rule says either what never goes with it, or what alone does")
        if named := self.when.keys() & self.others.keys():
            raise ValueError(f"{min(named)} stands on both sides of a rule")
        if not all((*self.when.values(), *self.others.values())):
            raise ValueError("a rule names no value of a parameter")
        return self

    @property
    def others(self) -> dict[str, tuple[str, ...]]:
        return self.never or self.only

    def __str__(self) -> str:
        verb = "never" if self.never else "only"
        return f"{_named(self.when)} {verb} with {_named(self.others)}"

    def forbidden(self, values: Mapping[str, Sequence[str]]) -> list[Forbidden]:
        """The combinations of these lists that the rule leaves out."""
        when = {name: frozenset(given) for name, given in self.when.items()}
        if self.never:
            return [when | {name: frozenset(given) for name, given in self.never.items()}]
        return [
            when | {name: frozenset(values[name]) - frozenset(given)}
            for name, given in self.only.items()
        ]


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
    # Line by line there are no combinations, and rules leave nothing out.
    rules: tuple[SpecRule, ...] = Field(default=(), max_length=MAX_RULES)

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
        values = {item.name: item.values for item in self.parameters if item.values}
        return with_rules(values, self.rules)

    @property
    def columns(self) -> dict[str, str]:
        """The upload's column for each parameter that is read from it."""
        return {item.name: item.column for item in self.parameters if item.column is not None}


def check_rules(spec: BatchSpec) -> None:
    """Raise InvalidInput for rules about what the batch does not combine from typed values."""
    columns = spec.columns
    for rule in spec.rules:
        for name in (*rule.when, *rule.others):
            if name in columns:
                raise InvalidInput(
                    f"The rule “{rule}” is about {name}, which comes from the table. Leave such"
                    " rows out of the table and take the rule away.",
                    field="rules",
                )
    check_ruled(spec.rules, spec.typed_values)
    if spec.rules and spec.mode is ExpansionMode.ZIP:
        raise InvalidInput(
            "Rules leave combinations out, and line by line there are none; leave the lines out.",
            field="rules",
        )


def check_ruled(rules: Sequence[SpecRule], values: Mapping[str, Sequence[str]]) -> None:
    """Raise InvalidInput for a rule about a value that is not there."""
    for rule in rules:
        for name, named in (*rule.when.items(), *rule.others.items()):
            if lost := [value for value in named if value not in values.get(name, ())]:
                raise InvalidInput(
                    f"The rule “{rule}” is about {lost[0]!r}, which is no value of {name}. Change"
                    " the rule, or add the value.",
                    field="rules",
                )


def with_rules(values: Mapping[str, Sequence[str]], rules: Sequence[SpecRule]) -> RuledValues:
    """The lists without what the rules leave out; rules about other lists are passed over."""
    known = [rule for rule in rules if {*rule.when, *rule.others} <= values.keys()]
    return RuledValues(values, [box for rule in known for box in rule.forbidden(values)])


def _named(values: Mapping[str, Sequence[str]]) -> str:
    return " and ".join(" or ".join(given) for given in values.values())


def check_settings(spec: BatchSpec) -> None:
    """Raise InvalidInput, naming the setting, unless the model can render with these."""
    try:
        registry.validate(spec.settings.to_render_settings())
    except InvalidRequest as error:
        raise InvalidInput(str(error), field=error.field) from error
