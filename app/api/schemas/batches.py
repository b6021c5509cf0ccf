"""Batches, their quotes and their progress, as the API speaks of them."""

from __future__ import annotations

from typing import Any, Self
from uuid import UUID

from pydantic import Field

from app.api.schemas.base import Id, Input, Output, Page, PageQuery, Text, Time
from app.api.schemas.campaigns import ParameterInput, RenderSettingsInput, Settings
from app.models import Batch as BatchRow
from app.models import BatchState, ExpansionMode, JobState, PauseReason
from app.models import Quote as QuoteRow
from app.services.budgets import MAX_CAP_MICROS
from app.services.progress import FailureSummary
from app.services.progress import Progress as ProgressValue
from app.services.promotions import MAX_VARIANTS
from app.services.specs import MAX_TAKES, BatchSpec
from app.services.value_rules import MAX_RULES
from engine import registry

MAX_SEED = registry.MAX_SEED - MAX_TAKES
MAX_SAMPLE = 1_000_000
MAX_PREVIEWS = 12
CAP_DESCRIPTION = (
    "The batch pauses before it would be charged more than this; null: the quote is the limit."
)


class Rule(Input):
    """Values that do not go together: `when` one of each of these, `never` or `only` those.

    Each maps placeholders to values.
    """

    when: dict[Text, list[Text]] = Field(min_length=1, max_length=20)
    never: dict[Text, list[Text]] = Field(default={}, max_length=20)
    only: dict[Text, list[Text]] = Field(default={}, max_length=20)


class BatchInput(Input):
    """What is left out comes from the campaign: values, settings, and the newest prompt.

    With an `upload_id` every row becomes a variant; `columns` maps placeholders to its columns,
    and what is left out of it is matched by name.
    """

    campaign_id: Id
    name: Text | None = Field(default=None, max_length=200)
    upload_id: Id | None = None
    columns: dict[Text, Text] = Field(default={}, max_length=100)
    parameters: list[ParameterInput] | None = Field(default=None, max_length=100)
    settings: RenderSettingsInput = RenderSettingsInput()
    mode: ExpansionMode | None = Field(
        default=None, description="Every combination (`cartesian`) unless rows are uploaded."
    )
    sample_size: int | None = Field(default=None, ge=1, le=MAX_SAMPLE)
    rules: list[Rule] | None = Field(
        default=None,
        max_length=MAX_RULES,
        description="Combinations to leave out, of typed values; the campaign's if absent.",
    )
    seed: int = Field(default=0, ge=0, le=MAX_SEED, description="Shared by all variants.")
    takes: int = Field(default=1, ge=1, le=MAX_TAKES, description="Renders with so many seeds.")
    drafts: bool = Field(
        default=False,
        description="Render drafts: half of the steps. They can be finished without these.",
    )
    force_render: bool = Field(
        default=False, description="Render also what the workspace has rendered before."
    )
    passthrough: dict[Text, Text] = Field(
        default={}, max_length=50, description="Your own names, sent back with every event."
    )


class BatchCreate(BatchInput):
    spend_cap_micros: int | None = Field(
        default=None, ge=1, le=MAX_CAP_MICROS, description=CAP_DESCRIPTION
    )
    launch: bool = Field(default=False, description="Launch at once, at the price of the quote.")


class QuoteCreate(BatchInput):
    """As for a batch, which this makes, in preview: launch it by its `batch_id`."""


class ProfilePrice(Output):
    """What the same batch costs in another quality profile; `is_estimate`: by a part of it."""

    units: float
    cost_micros: int
    guard_cost_micros: int
    estimated_s: float | None
    is_estimate: bool


class QuotedDrafts(Output):
    """What drafts spare: `variants` go on from theirs, with `steps` computed already in all.

    `cost_micros` is what these steps would cost. Variants whose draft's state is not kept any more
    are rendered from the first step, at the full price.
    """

    variants: int
    steps: int
    cost_micros: int


class Quote(Output):
    """The price before launch, in millionths of the currency; a charge is never above it.

    `full_cost_micros` is what the variants cost one by one, `cost_micros` what they cost planned
    together. `unit_price_by_parameter` is what one more value of a parameter costs, in clips.
    `drafts` is there where drafts are finished; for drafts themselves `finish_cost_micros` says
    what finishing all of them would cost besides.
    """

    id: Id
    batch_id: Id
    variant_count: int
    full_cost_micros: int
    cost_micros: int
    currency: str
    estimated_s: float | None
    unit_price_by_parameter: dict[str, float]
    profiles: dict[str, ProfilePrice]
    drafts: QuotedDrafts | None
    finish_cost_micros: int | None
    created_at: Time

    @classmethod
    def of(cls, row: QuoteRow) -> Self:
        prices = row.details.get("profiles", {})
        drafts = row.details.get("drafts")
        return cls(
            id=row.id,
            batch_id=row.batch_id,
            variant_count=row.variant_count,
            full_cost_micros=row.full_cost_micros,
            cost_micros=row.cost_micros,
            currency=row.currency,
            estimated_s=row.estimated_s,
            unit_price_by_parameter=row.details.get("unit_price_by_parameter", {}),
            profiles={
                name: ProfilePrice(
                    units=price["units"],
                    cost_micros=price["cost_micros"],
                    guard_cost_micros=price.get("guard_cost_micros", 0),
                    estimated_s=price.get("estimated_s"),
                    is_estimate=price.get("is_estimate", False),
                )
                for name, price in prices.items()
            },
            drafts=drafts
            and QuotedDrafts(**{name: drafts[name] for name in QuotedDrafts.model_fields}),
            finish_cost_micros=row.details.get("finish_cost_micros"),
            created_at=row.created_at,
        )


class Failure(Output):
    """A reason why variants have failed, and how many."""

    message: str
    count: int


class Progress(Output):
    """`done` variants have ended, `failed` of them without a result; `counts` are by job state.

    `rate_per_s` and `eta_s` are null as long as too little is rendered to tell.
    """

    total: int
    done: int
    failed: int
    counts: dict[JobState, int]
    cost_micros: int
    rate_per_s: float | None
    eta_s: float | None
    failures: list[Failure]

    @classmethod
    def of(cls, value: ProgressValue, failures: list[FailureSummary]) -> Self:
        return cls(
            total=value.total,
            done=value.done,
            failed=value.failed,
            counts=value.counts,
            cost_micros=value.cost_micros,
            rate_per_s=value.rate_per_s,
            eta_s=value.eta_s,
            failures=[Failure(message=item.message, count=item.count) for item in failures],
        )


class BatchSummary(Output):
    id: Id
    campaign_id: Id
    prompt_template_id: Id
    upload_id: Id | None
    name: str
    state: BatchState
    mode: ExpansionMode
    variant_count: int
    failure: str | None
    spend_cap_micros: int | None
    pause_reason: PauseReason | None = Field(
        description="`budget`: the spend cap is reached; null where a person paused it."
    )
    created_at: Time
    launched_at: Time | None
    completed_at: Time | None

    @classmethod
    def of_row(cls, row: BatchRow) -> Self:
        return cls(**_columns(row))


class BatchPage(Page[BatchSummary]):
    pass


class Batch(BatchSummary):
    """A batch with its settings, the quote that binds, and how far it is.

    `drafts_batch_id` is the batch whose drafts it finishes.
    """

    settings: Settings
    drafts_batch_id: Id | None
    seed: int
    takes: int
    passthrough: dict[str, str]
    quote: Quote
    progress: Progress

    @classmethod
    def of(cls, row: BatchRow, value: ProgressValue, failures: list[FailureSummary]) -> Self:
        spec = BatchSpec.model_validate(row.spec)
        return cls(
            **_columns(row),
            settings=Settings.of(spec.settings.to_render_settings()),
            drafts_batch_id=UUID(spec.drafts_batch_id) if spec.drafts_batch_id else None,
            seed=spec.seed,
            takes=spec.takes,
            passthrough=spec.passthrough,
            quote=Quote.of(value.quote),
            progress=Progress.of(value, failures),
        )


class BatchQuery(PageQuery):
    campaign_id: Id | None = None


class PreviewCreate(Input):
    """Variants to render quickly, in few steps and free of charge, by their ordinals."""

    ordinals: list[int] = Field(min_length=1, max_length=MAX_PREVIEWS)


class PreviewsStarted(Output):
    """`started` counts the previews that are new."""

    batch_id: Id
    started: int


class PromotionCreate(Input):
    """Drafts to finish in full quality: these, or all that are approved."""

    variant_ids: list[Id] | None = Field(default=None, min_length=1, max_length=MAX_VARIANTS)
    launch: bool = Field(default=False, description="Launch at once, at the price of the quote.")


class SpendCap(Input):
    spend_cap_micros: int | None = Field(ge=1, le=MAX_CAP_MICROS, description=CAP_DESCRIPTION)


class Retried(Output):
    """`retried` counts the failed variants that are tried again."""

    batch_id: Id
    retried: int


def _columns(row: BatchRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in BatchSummary.model_fields}
