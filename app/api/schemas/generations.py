"""Single generations, as the API speaks of them."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from app.api.schemas.base import Id, Input, Output, Page, Text, Time
from app.api.schemas.batches import MAX_SEED
from app.api.schemas.campaigns import MAX_PROMPT_LENGTH, RenderSettingsInput, Settings
from app.api.schemas.variants import Artifact
from app.api.waiting import MAX_WAIT_S
from app.models import JobState, ParameterKind
from app.services.generations import Generation as GenerationValue
from app.services.generations import state_of
from app.services.specs import BatchSpec

FINAL = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class GenerationCreate(Input):
    """One render. `values` fill the placeholders of the prompt, if it has any."""

    prompt: Text = Field(min_length=1, max_length=MAX_PROMPT_LENGTH)
    negative_prompt: Text = Field(default="", max_length=MAX_PROMPT_LENGTH)
    values: dict[Text, Text] = Field(default={}, max_length=100)
    kinds: dict[Text, ParameterKind] = Field(
        default={}, max_length=100, description="Kinds of the values; guessed from their names."
    )
    settings: RenderSettingsInput = RenderSettingsInput()
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    force_render: bool = Field(
        default=False, description="Render also what the workspace has rendered before."
    )
    passthrough: dict[Text, Text] = Field(
        default={}, max_length=50, description="Your own names, sent back with every event."
    )


class WaitQuery(Input):
    wait: int = Field(
        default=0,
        ge=0,
        le=MAX_WAIT_S,
        description="Seconds to wait for the end; the answer may come earlier, and not final.",
    )


class GenerationError(Output):
    code: str
    message: str


class Generation(Output):
    """A render. `status` ends as succeeded, failed or cancelled; `progress` goes from 0 to 1.

    Its webhooks are those of a batch with the same id.
    """

    id: Id
    status: JobState
    progress: float
    prompt: str | None = Field(description="With its values filled in; null until it is queued.")
    seed: int
    settings: Settings
    passthrough: dict[str, str]
    cost_micros: int
    max_cost_micros: int
    currency: str
    variant_id: Id | None
    artifact: Artifact | None
    error: GenerationError | None
    created_at: Time
    completed_at: Time | None

    @classmethod
    def of(cls, value: GenerationValue) -> Self:
        batch, view = value.batch, value.view
        spec = BatchSpec.model_validate(batch.spec)
        status = state_of(value)
        artifact = view.artifact if view else None
        return cls(
            id=batch.id,
            status=status,
            progress=1.0 if status in FINAL else round(min(value.progress.in_flight, 1.0), 3),
            prompt=view.variant.prompt if view else None,
            seed=spec.seed,
            settings=Settings.of(spec.settings.to_render_settings()),
            passthrough=spec.passthrough,
            cost_micros=value.progress.cost_micros,
            max_cost_micros=value.progress.quote.cost_micros,
            currency=value.progress.quote.currency,
            variant_id=view.variant.id if view else None,
            artifact=Artifact.of(artifact) if artifact else None,
            error=_error(value) if status is JobState.FAILED else None,
            created_at=batch.created_at,
            completed_at=batch.completed_at,
        )


class GenerationPage(Page[Generation]):
    pass


def _error(value: GenerationValue) -> GenerationError:
    job = value.view.job if value.view else None
    if job is None:
        return GenerationError(code="failed", message=value.batch.failure or "")
    return GenerationError(code=job.error_code or "failed", message=job.error_message or "")
