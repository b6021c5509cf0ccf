"""Campaigns, versions of their prompt template, and parameters, as the API speaks of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import Field

from app.api.schemas.base import Id, Input, Output, Page, Text, Time
from app.models import Campaign as CampaignRow
from app.models import Parameter as ParameterRow
from app.models import ParameterKind
from app.models import PromptTemplate as PromptTemplateRow
from app.services.campaigns import MAX_BRIEF_LENGTH, MAX_NAME_LENGTH, CampaignDetails
from app.services.parameters import MAX_VALUES
from engine.types import GenerationTask, QualityProfile, RenderSettings

MAX_PROMPT_LENGTH = 4_000


class RenderSettingsInput(Input):
    """How to render; what is left out is the model's own recommendation (`GET /v1/models`)."""

    model_id: Text | None = Field(default=None, max_length=100)
    task: GenerationTask | None = None
    size: Text | None = Field(
        default=None, max_length=20, description="A size of the model: `16:9` or `224x128`."
    )
    num_frames: int | None = Field(default=None, ge=1, le=10_000)
    num_inference_steps: int | None = Field(default=None, ge=1, le=1_000)
    guidance_scale: float | None = Field(default=None, ge=0, le=100, allow_inf_nan=False)
    profile: QualityProfile | None = None


class Settings(Output):
    """How something is rendered; width and height in pixels, fps per second."""

    model_id: str
    task: GenerationTask
    width: int
    height: int
    num_frames: int
    fps: int
    num_inference_steps: int
    guidance_scale: float
    profile: QualityProfile
    draft_step: int | None = Field(
        default=None, description="Of drafts: the step after which they stop."
    )

    @classmethod
    def of(cls, settings: RenderSettings) -> Self:
        return cls(**settings.to_dict())


class ParameterInput(Input):
    """A placeholder with the values that it takes."""

    name: Text = Field(min_length=1, max_length=64)
    kind: ParameterKind | None = Field(default=None, description="Guessed from the name if absent.")
    values: list[Text] = Field(default=[], max_length=MAX_VALUES)


class ParametersInput(Input):
    parameters: list[ParameterInput] = Field(max_length=100)


class NamedPlace(Output):
    """A place that a value names: its id at GeoNames, and its IANA time zone.

    `timezone` is empty for a country or a state with several.
    """

    geonameid: int
    name: str
    country_code: str
    timezone: str


class Parameter(Output):
    """`places` are those that values of a geography name beyond doubt, by value."""

    name: str
    kind: ParameterKind
    values: list[str]
    places: dict[str, NamedPlace]

    @classmethod
    def of(cls, row: ParameterRow) -> Self:
        places = {value: NamedPlace(**place) for value, place in row.places.items()}
        return cls(name=row.name, kind=row.kind, values=row.values, places=places)


class PromptTemplateCreate(Input):
    """A new version of the prompt; `{{ name }}` is a placeholder."""

    text: Text = Field(min_length=1, max_length=MAX_PROMPT_LENGTH)
    negative_text: Text = Field(default="", max_length=MAX_PROMPT_LENGTH)


class PromptTemplate(Output):
    id: Id
    campaign_id: Id
    version: int
    text: str
    negative_text: str
    created_at: Time

    @classmethod
    def of(cls, row: PromptTemplateRow) -> Self:
        return cls(
            id=row.id,
            campaign_id=row.campaign_id,
            version=row.version,
            text=row.text,
            negative_text=row.negative_text,
            created_at=row.created_at,
        )


class PromptTemplatePage(Page[PromptTemplate]):
    pass


class CampaignCreate(Input):
    name: Text = Field(min_length=1, max_length=MAX_NAME_LENGTH)
    brief: Text = Field(default="", max_length=MAX_BRIEF_LENGTH)
    prompt: Text = Field(
        min_length=1, max_length=MAX_PROMPT_LENGTH, description="`{{ name }}` is a placeholder."
    )
    negative_prompt: Text = Field(default="", max_length=MAX_PROMPT_LENGTH)
    settings: RenderSettingsInput = RenderSettingsInput()
    parameters: list[ParameterInput] = Field(default=[], max_length=100)


class CampaignUpdate(Input):
    """What is to change; everything else stays."""

    name: Text | None = Field(default=None, min_length=1, max_length=MAX_NAME_LENGTH)
    brief: Text | None = Field(default=None, max_length=MAX_BRIEF_LENGTH)
    settings: RenderSettingsInput | None = None


class CampaignSummary(Output):
    id: Id
    name: str
    brief: str
    created_at: Time
    updated_at: Time | None
    archived_at: Time | None

    @classmethod
    def of_row(cls, row: CampaignRow) -> Self:
        return cls(
            id=row.id,
            name=row.name,
            brief=row.brief,
            created_at=row.created_at,
            updated_at=row.updated_at,
            archived_at=row.archived_at,
        )


class CampaignPage(Page[CampaignSummary]):
    pass


class Campaign(CampaignSummary):
    """A campaign with the newest version of its prompt, and its parameters in order."""

    settings: Settings
    prompt_template: PromptTemplate
    parameters: list[Parameter]

    @classmethod
    def of(cls, details: CampaignDetails, parameters: Sequence[ParameterRow]) -> Self:
        row = details.campaign
        names = RenderSettings.__dataclass_fields__
        render = {name: value for name, value in row.settings.items() if name in names}
        return cls(
            **CampaignSummary.of_row(row).model_dump(),
            settings=Settings(**render),
            prompt_template=PromptTemplate.of(details.template),
            parameters=[Parameter.of(item) for item in parameters],
        )
