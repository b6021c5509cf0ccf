"""A campaign once more: copied under another name, or taken back out of the archive."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.models import Campaign
from app.services.campaigns import (
    MAX_NAME_LENGTH,
    create_campaign,
    get_campaign,
    set_parameters,
)
from app.services.parameters import ParameterInput
from app.services.scoping import get_in_workspace

_SUFFIX = " (copy)"


def duplicate_campaign(session: Session, actor: Actor, campaign_id: UUID) -> Campaign:
    """A new campaign with the same brief, settings, newest prompt and values; no batches."""
    require(actor, Action.EDIT)
    details = get_campaign(session, actor, campaign_id)
    copy = create_campaign(
        session,
        actor,
        name=details.campaign.name[: MAX_NAME_LENGTH - len(_SUFFIX)] + _SUFFIX,
        brief=details.campaign.brief,
        settings=details.campaign.settings,
        prompt=details.template.text,
        negative_prompt=details.template.negative_text,
    )
    parameters = [
        ParameterInput(name=item.name, kind=item.kind, values=tuple(item.values))
        for item in details.parameters
    ]
    set_parameters(session, actor, copy.id, parameters)
    return copy


def restore_campaign(session: Session, actor: Actor, campaign_id: UUID) -> Campaign:
    """Put an archived campaign back into the list."""
    require(actor, Action.EDIT)
    campaign = get_in_workspace(session, actor, Campaign, campaign_id)
    campaign.archived_at = None
    session.flush()
    return campaign


def find_archived(session: Session, actor: Actor, campaign_id: UUID) -> Campaign | None:
    """The campaign if it is in the archive of this workspace."""
    require(actor, Action.VIEW)
    return session.scalars(
        select(Campaign).where(
            Campaign.id == campaign_id,
            Campaign.workspace_id == actor.workspace_id,
            Campaign.archived_at.is_not(None),
        )
    ).one_or_none()


def has_archived(session: Session, actor: Actor) -> bool:
    """Whether the archive of this workspace holds anything."""
    require(actor, Action.VIEW)
    found = exists().where(
        Campaign.workspace_id == actor.workspace_id, Campaign.archived_at.is_not(None)
    )
    return bool(session.scalar(select(found)))
