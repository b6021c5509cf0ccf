"""Campaigns, versions of their prompt template, and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from app.access import Action
from app.api.cursors import read_cursor, read_id_cursor
from app.api.routes import Call, Empty, Route, RouteKind, Routes
from app.api.schemas.base import PageQuery, paged
from app.api.schemas.campaigns import (
    Campaign,
    CampaignCreate,
    CampaignPage,
    CampaignSummary,
    CampaignUpdate,
    ParameterInput,
    ParametersInput,
    PromptTemplate,
    PromptTemplateCreate,
    PromptTemplatePage,
    RenderSettingsInput,
)
from app.services import campaign_list, campaigns
from app.services.parameters import ParameterInput as ParameterValues
from app.services.parameters import guess_kind
from app.services.render_settings import complete_settings

routes = Routes()
TAG: Final = "Campaigns"


@routes.add(
    Route(
        method="GET",
        path="/campaigns",
        kind=RouteKind.COLLECTION,
        action=Action.VIEW,
        tag=TAG,
        summary="List campaigns, the newest first",
        answer=CampaignPage,
        query=PageQuery,
    )
)
def list_campaigns(call: Call[Empty, PageQuery]) -> CampaignPage:
    rows = campaign_list.list_newest(
        call.session,
        call.actor,
        limit=call.query.limit + 1,
        before=read_id_cursor(call.actor, call.query.cursor),
    )
    data, cursor = paged(call, rows, CampaignSummary.of_row, lambda row: row.id)
    return CampaignPage(data=data, next_cursor=cursor)


@routes.add(
    Route(
        method="POST",
        path="/campaigns",
        kind=RouteKind.CREATE,
        action=Action.EDIT,
        tag=TAG,
        summary="Make a campaign with its prompt template and parameters",
        answer=Campaign,
        body=CampaignCreate,
        status=201,
    )
)
def create_campaign(call: Call[CampaignCreate, Empty]) -> Campaign:
    body = call.body
    campaign = campaigns.create_campaign(
        call.session,
        call.actor,
        name=body.name,
        brief=body.brief,
        prompt=body.prompt,
        negative_prompt=body.negative_prompt,
        settings=complete_settings(settings_given(body.settings)).to_dict(),
    )
    if body.parameters:
        _set_parameters(call, campaign.id, body.parameters)
    return _show(call, campaign.id)


@routes.add(
    Route(
        method="GET",
        path="/campaigns/<uuid:campaign_id>",
        kind=RouteKind.OBJECT,
        action=Action.VIEW,
        tag=TAG,
        summary="Get a campaign with its newest prompt and its parameters",
        answer=Campaign,
    )
)
def get_campaign(call: Call[Empty, Empty], campaign_id: UUID) -> Campaign:
    return _show(call, campaign_id)


@routes.add(
    Route(
        method="PATCH",
        path="/campaigns/<uuid:campaign_id>",
        kind=RouteKind.OBJECT,
        action=Action.EDIT,
        tag=TAG,
        summary="Change name, brief or render settings",
        answer=Campaign,
        body=CampaignUpdate,
    )
)
def update_campaign(call: Call[CampaignUpdate, Empty], campaign_id: UUID) -> Campaign:
    body = call.body
    details = campaigns.get_campaign(call.session, call.actor, campaign_id)
    settings: dict[str, Any] | None = None
    if body.settings is not None:
        before = details.campaign.settings
        render = complete_settings(settings_given(body.settings), base=before).to_dict()
        settings = {**before, **render}
    campaigns.update_campaign(
        call.session, call.actor, campaign_id, name=body.name, brief=body.brief, settings=settings
    )
    return _show(call, campaign_id)


@routes.add(
    Route(
        method="DELETE",
        path="/campaigns/<uuid:campaign_id>",
        kind=RouteKind.OBJECT,
        action=Action.EDIT,
        tag=TAG,
        summary="Archive a campaign; its batches and artifacts stay",
        answer=None,
        status=204,
    )
)
def archive_campaign(call: Call[Empty, Empty], campaign_id: UUID) -> None:
    campaigns.archive_campaign(call.session, call.actor, campaign_id)


@routes.add(
    Route(
        method="PUT",
        path="/campaigns/<uuid:campaign_id>/parameters",
        kind=RouteKind.OBJECT,
        action=Action.EDIT,
        tag=TAG,
        summary="Replace the parameters: one for every placeholder of the prompt",
        answer=Campaign,
        body=ParametersInput,
    )
)
def set_parameters(call: Call[ParametersInput, Empty], campaign_id: UUID) -> Campaign:
    _set_parameters(call, campaign_id, call.body.parameters)
    return _show(call, campaign_id)


@routes.add(
    Route(
        method="GET",
        path="/campaigns/<uuid:campaign_id>/prompt-templates",
        kind=RouteKind.OBJECT,
        action=Action.VIEW,
        tag=TAG,
        summary="List the versions of a prompt, the newest first",
        answer=PromptTemplatePage,
        query=PageQuery,
    )
)
def list_prompt_templates(call: Call[Empty, PageQuery], campaign_id: UUID) -> PromptTemplatePage:
    rows = campaigns.list_prompt_templates(
        call.session,
        call.actor,
        campaign_id,
        limit=call.query.limit + 1,
        before_version=read_cursor(call.actor, call.query.cursor),
    )
    data, cursor = paged(call, rows, PromptTemplate.of, lambda row: row.version)
    return PromptTemplatePage(data=data, next_cursor=cursor)


@routes.add(
    Route(
        method="POST",
        path="/campaigns/<uuid:campaign_id>/prompt-templates",
        kind=RouteKind.OBJECT,
        action=Action.EDIT,
        tag=TAG,
        summary="Save a prompt as a new version, unless it is the newest one already",
        answer=PromptTemplate,
        body=PromptTemplateCreate,
        status=201,
    )
)
def create_prompt_template(
    call: Call[PromptTemplateCreate, Empty], campaign_id: UUID
) -> PromptTemplate:
    row = campaigns.save_prompt_template(
        call.session,
        call.actor,
        campaign_id,
        text=call.body.text,
        negative_text=call.body.negative_text,
    )
    return PromptTemplate.of(row)


def settings_given(settings: RenderSettingsInput) -> dict[str, Any]:
    return settings.model_dump(exclude_none=True)


def _set_parameters(
    call: Call[Any, Empty], campaign_id: UUID, parameters: Sequence[ParameterInput]
) -> None:
    campaigns.set_parameters(
        call.session,
        call.actor,
        campaign_id,
        [
            ParameterValues(
                name=item.name, kind=item.kind or guess_kind(item.name), values=item.values
            )
            for item in parameters
        ],
    )


def _show(call: Call[Any, Any], campaign_id: UUID) -> Campaign:
    details = campaigns.get_campaign(call.session, call.actor, campaign_id)
    # Times of a fresh row are the database's.
    call.session.refresh(details.campaign)
    return Campaign.of(details, details.parameters)
