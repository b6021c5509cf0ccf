"""Campaigns: a brief, render settings, versions of a prompt template, and its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput, NotFound
from app.models import SETTING_KINDS, Campaign, Parameter, ParameterKind, PromptTemplate
from app.services.blocked_terms import in_prompts, in_values, load_index, refuse
from app.services.parameters import ParameterInput, clean_values, guess_kind
from app.services.places import resolve_values
from app.services.prompts import ParsedPrompt, PromptError, parse_prompt
from app.services.scoping import get_in_workspace
from engine import registry
from engine.errors import InvalidRequest
from engine.types import RenderSettings

MAX_NAME_LENGTH: Final = 200
MAX_BRIEF_LENGTH: Final = 10_000
# Kept beside the render settings: what a new batch of the campaign starts from.
BATCH_DEFAULTS: Final = frozenset({"mode", "sample_size", "seed", "takes", "rules"})


@dataclass(frozen=True, kw_only=True)
class CampaignDetails:
    """A campaign with the newest version of its prompt and its parameters in order."""

    campaign: Campaign
    template: PromptTemplate
    parameters: Sequence[Parameter]


def create_campaign(
    session: Session,
    actor: Actor,
    *,
    name: str,
    settings: Mapping[str, Any],
    brief: str = "",
    prompt: str | None = None,
    negative_prompt: str = "",
) -> Campaign:
    """Make a campaign; with a `prompt` also version 1 of its template and its parameters.

    `settings` are the fields of RenderSettings and any of BATCH_DEFAULTS.
    """
    require(actor, Action.EDIT)
    campaign = Campaign(
        workspace_id=actor.workspace_id,
        name=_check_name(name),
        brief=_check_brief(brief),
        settings=check_settings(settings),
        created_by=actor.user_id,
    )
    session.add(campaign)
    session.flush()
    if prompt is not None:
        save_prompt_template(
            session, actor, campaign.id, text=prompt, negative_text=negative_prompt
        )
    return campaign


def get_campaign(session: Session, actor: Actor, campaign_id: UUID) -> CampaignDetails:
    """NotFound also for a campaign that has no prompt yet."""
    require(actor, Action.VIEW)
    campaign = get_in_workspace(session, actor, Campaign, campaign_id)
    template = _newest_template(session, campaign.id)
    if template is None:
        raise NotFound("This campaign has no prompt yet.")
    return CampaignDetails(
        campaign=campaign, template=template, parameters=_parameters(session, campaign.id)
    )


def update_campaign(
    session: Session,
    actor: Actor,
    campaign_id: UUID,
    *,
    name: str | None = None,
    brief: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Campaign:
    """Change what is given; the batches made before keep what they were made from."""
    require(actor, Action.EDIT)
    campaign = get_in_workspace(session, actor, Campaign, campaign_id)
    if name is not None:
        campaign.name = _check_name(name)
    if brief is not None:
        campaign.brief = _check_brief(brief)
    if settings is not None:
        campaign.settings = check_settings(settings)
    _touch(session, campaign)
    return campaign


def archive_campaign(session: Session, actor: Actor, campaign_id: UUID) -> Campaign:
    """Take a campaign out of the list; its batches and artifacts stay."""
    require(actor, Action.EDIT)
    campaign = get_in_workspace(session, actor, Campaign, campaign_id)
    if campaign.archived_at is None:
        campaign.archived_at = session.scalar(select(func.now()))
        session.flush()
    return campaign


def save_prompt_template(
    session: Session, actor: Actor, campaign_id: UUID, *, text: str, negative_text: str = ""
) -> PromptTemplate:
    """Check a prompt and keep it as a new version, unless it is the newest one already.

    Placeholders get a parameter each, those that are gone lose theirs; PromptError lists every
    fault, with the field `prompt` or `negative_prompt`, BlockedTermError every blocked term.
    """
    require(actor, Action.EDIT)
    # Two people who save at once must not both make version 2.
    campaign = session.scalars(
        select(Campaign)
        .where(Campaign.id == campaign_id, Campaign.workspace_id == actor.workspace_id)
        .with_for_update()
    ).one_or_none()
    if campaign is None:
        raise NotFound("There is no such campaign in this workspace.")
    names = placeholder_names(text, negative_text)
    refuse(in_prompts(load_index(session, actor.workspace_id), text, negative_text))
    newest = _newest_template(session, campaign.id)
    if newest is not None and (newest.text, newest.negative_text) == (text, negative_text):
        return newest
    template = PromptTemplate(
        workspace_id=actor.workspace_id,
        campaign_id=campaign.id,
        version=newest.version + 1 if newest else 1,
        text=text,
        negative_text=negative_text,
        created_by=actor.user_id,
    )
    session.add(template)
    _match_parameters(session, campaign, names)
    _touch(session, campaign)
    return template


def list_prompt_templates(
    session: Session,
    actor: Actor,
    campaign_id: UUID,
    *,
    limit: int,
    before_version: int | None = None,
) -> list[PromptTemplate]:
    """Versions of a campaign's prompt, the newest first."""
    require(actor, Action.VIEW)
    get_in_workspace(session, actor, Campaign, campaign_id)
    query = select(PromptTemplate).where(PromptTemplate.campaign_id == campaign_id)
    if before_version is not None:
        query = query.where(PromptTemplate.version < before_version)
    return list(session.scalars(query.order_by(PromptTemplate.version.desc()).limit(limit)))


def set_parameters(
    session: Session, actor: Actor, campaign_id: UUID, parameters: Sequence[ParameterInput]
) -> list[Parameter]:
    """Replace kinds and values; every placeholder must be there, and nothing that is none.

    Parameters of the kinds size, duration and language need not stand in the prompt.
    """
    require(actor, Action.EDIT)
    details = get_campaign(session, actor, campaign_id)
    names = placeholder_names(details.template.text, details.template.negative_text)
    _check_names(parameters, names)
    known = {item.name: item for item in details.parameters}
    values = {item.name: clean_values(item.name, item.values) for item in parameters}
    refuse(in_values(load_index(session, actor.workspace_id), values))
    rows: list[Parameter] = []
    for position, given in enumerate(parameters):
        row = known.pop(given.name, None) or _new_parameter(details.campaign, given.name)
        row.kind = given.kind
        row.values = values[given.name]
        row.places = resolve_values(row.values) if given.kind is ParameterKind.GEOGRAPHY else {}
        row.position = position
        session.add(row)
        rows.append(row)
    for left_over in known.values():
        session.delete(left_over)
    _touch(session, details.campaign)
    return rows


def placeholder_names(text: str, negative_text: str = "") -> list[str]:
    """Names in the order of the prompt, then those of the negative prompt alone."""
    parsed = [parse_prompt(text), *_parse_negative(negative_text)]
    return list(dict.fromkeys(item.name for prompt in parsed for item in prompt.placeholders))


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they are stored; InvalidInput names the one that the model cannot use."""
    render = {name: value for name, value in settings.items() if name not in BATCH_DEFAULTS}
    try:
        checked = RenderSettings.from_dict(render)
        registry.validate(checked)
    except InvalidRequest as error:
        raise InvalidInput(str(error), field=error.field) from None
    return {**settings, **checked.to_dict()}


def _parse_negative(text: str) -> list[ParsedPrompt]:
    if not text.strip():
        return []
    try:
        return [parse_prompt(text)]
    except PromptError as error:
        raise PromptError(error.findings, field="negative_prompt") from None


def _check_names(parameters: Sequence[ParameterInput], placeholders: Sequence[str]) -> None:
    given = [item.name for item in parameters]
    if twice := next((name for name in given if given.count(name) > 1), None):
        raise InvalidInput(f"The parameter {twice} is given twice.", field=twice)
    if missing := [name for name in placeholders if name not in given]:
        raise InvalidInput(
            f"The prompt uses {{{{ {missing[0]} }}}}, but there is no parameter of that name.",
            field=missing[0],
        )
    for item in parameters:
        if item.name not in placeholders and item.kind not in SETTING_KINDS:
            raise InvalidInput(
                f"The prompt does not use {{{{ {item.name} }}}}; put it in, or drop the parameter.",
                field=item.name,
            )


def _match_parameters(session: Session, campaign: Campaign, names: Sequence[str]) -> None:
    """One parameter per placeholder, in the prompt's order; values typed before are kept."""
    known = {item.name: item for item in _parameters(session, campaign.id)}
    for position, name in enumerate(names):
        row = known.pop(name, None) or _new_parameter(campaign, name)
        row.position = position
        session.add(row)
    for position, left_over in enumerate(known.values(), len(names)):
        if left_over.kind in SETTING_KINDS:
            left_over.position = position
        else:
            session.delete(left_over)


def _new_parameter(campaign: Campaign, name: str) -> Parameter:
    return Parameter(
        workspace_id=campaign.workspace_id,
        campaign_id=campaign.id,
        name=name,
        kind=guess_kind(name),
        values=[],
    )


def _newest_template(session: Session, campaign_id: UUID) -> PromptTemplate | None:
    return session.scalars(
        select(PromptTemplate)
        .where(PromptTemplate.campaign_id == campaign_id)
        .order_by(PromptTemplate.version.desc())
        .limit(1)
    ).one_or_none()


def _parameters(session: Session, campaign_id: UUID) -> Sequence[Parameter]:
    return session.scalars(
        select(Parameter)
        .where(Parameter.campaign_id == campaign_id)
        .order_by(Parameter.position, Parameter.name)
    ).all()


def _touch(session: Session, campaign: Campaign) -> None:
    campaign.updated_at = session.scalar(select(func.now()))
    session.flush()


def _check_name(text: str) -> str:
    name = " ".join(text.split())
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidInput(
            f"Give the campaign a name of up to {MAX_NAME_LENGTH} characters.", field="name"
        )
    return name


def _check_brief(text: str) -> str:
    brief = text.replace("\r\n", "\n").strip()
    if len(brief) > MAX_BRIEF_LENGTH or "\0" in brief:
        raise InvalidInput(
            f"The brief has {len(brief):,} characters; {MAX_BRIEF_LENGTH:,} are allowed.",
            field="brief",
        )
    return brief
