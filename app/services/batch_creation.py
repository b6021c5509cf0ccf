"""Makes a batch with its quote: from a spec, or from a batch that there is already."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.db import config_of
from app.errors import Conflict, InvalidInput, ServiceUnavailable
from app.models import (
    Batch,
    BatchState,
    Campaign,
    PromptTemplate,
    Quote,
    Upload,
    Workspace,
)
from app.services import calibrations, quotes
from app.services.batch_checks import (
    check_placeholders,
    check_upload,
    check_upload_values,
    check_words,
    checked_count,
    checked_requests,
)
from app.services.blocked_terms import load_index
from app.services.expanding import open_source
from app.services.planning import find_varying
from app.services.quotes import QuoteValue
from app.services.scoping import get_in_workspace
from app.services.specs import BatchSpec, check_rules, check_settings
from app.storage import storage_from_url
from engine.errors import CheckpointError, InvalidRequest

MAX_NAME_LENGTH = 200


def create_batch(
    session: Session,
    actor: Actor,
    *,
    campaign_id: UUID,
    spec: BatchSpec,
    upload_id: UUID | None = None,
    name: str | None = None,
) -> Batch:
    """A batch with its quote; every variant is made once to price it, and none is kept.

    InvalidInput names the placeholder, setting or row that cannot be used, LimitExceeded the
    workspace's limit. Nothing is rendered before `launch_batch`, except previews.
    """
    value = estimate_batch(session, actor, campaign_id=campaign_id, spec=spec, upload_id=upload_id)
    campaign = get_in_workspace(session, actor, Campaign, campaign_id)
    template = _latest_template(session, campaign)
    batch = Batch(
        workspace_id=actor.workspace_id,
        campaign_id=campaign.id,
        prompt_template_id=template.id,
        upload_id=upload_id,
        name=_name(session, campaign, name),
        state=BatchState.PREVIEWING,
        mode=spec.mode,
        spec=spec.to_json(),
        variant_count=value.variant_count,
        created_by=actor.user_id,
    )
    session.add(batch)
    session.flush()
    session.add(Quote(workspace_id=actor.workspace_id, batch_id=batch.id, **asdict(value)))
    session.flush()
    return batch


def estimate_batch(
    session: Session,
    actor: Actor,
    *,
    campaign_id: UUID,
    spec: BatchSpec,
    upload_id: UUID | None = None,
) -> QuoteValue:
    """The quote that the batch would have; raises as `create_batch`, and keeps nothing."""
    require(actor, Action.EDIT)
    campaign = get_in_workspace(session, actor, Campaign, campaign_id)
    template = _latest_template(session, campaign)
    check_placeholders(template, spec)
    check_settings(spec)
    check_rules(spec)
    terms = load_index(session, actor.workspace_id)
    check_words(template, spec, terms=terms)
    if upload_id is not None:
        upload = get_in_workspace(session, actor, Upload, upload_id)
        check_upload(upload, campaign, spec)
        storage = storage_from_url(config_of(session))
        check_upload_values(storage, upload, template, spec, terms=terms)
    workspace = session.get_one(Workspace, actor.workspace_id)
    checked_count(spec, workspace)
    try:
        source = open_source(session, spec, prompt_template_id=template.id, upload_id=upload_id)
        return quotes.estimate(
            spec,
            checked_requests(source, terms=terms),
            rate_micros_per_unit=workspace.rate_micros_per_unit,
            currency=workspace.currency,
            varying=find_varying(spec, source.read_rows),
            measured=calibrations.load_with_shipped(session, spec.settings.model_id),
        )
    except CheckpointError as error:
        raise ServiceUnavailable(f"The model's weights cannot be used: {error}") from error
    except InvalidRequest as error:
        raise InvalidInput(str(error), field=error.field) from error


def duplicate_batch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    """A new batch of the same values, settings and upload, quoted anew with the newest prompt.

    What was finished before is not rendered or charged again.
    """
    require(actor, Action.VIEW)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    if batch.spec.get("drafts_batch_id"):
        raise Conflict("This batch finishes drafts of another one; finish them there once more.")
    return create_batch(
        session,
        actor,
        campaign_id=batch.campaign_id,
        spec=BatchSpec.model_validate(batch.spec),
        upload_id=batch.upload_id,
    )


def requote_batch(session: Session, actor: Actor, batch: Batch, spec: BatchSpec) -> None:
    """Give a batch that is not launched yet another spec, quoted with the newest prompt."""
    value = estimate_batch(
        session, actor, campaign_id=batch.campaign_id, spec=spec, upload_id=batch.upload_id
    )
    campaign = session.get_one(Campaign, batch.campaign_id)
    batch.prompt_template_id = _latest_template(session, campaign).id
    batch.spec, batch.variant_count = spec.to_json(), value.variant_count
    session.add(Quote(workspace_id=batch.workspace_id, batch_id=batch.id, **asdict(value)))
    session.flush()


def _latest_template(session: Session, campaign: Campaign) -> PromptTemplate:
    template = session.scalars(
        select(PromptTemplate)
        .where(PromptTemplate.campaign_id == campaign.id)
        .order_by(PromptTemplate.version.desc())
        .limit(1)
    ).one_or_none()
    if template is None:
        raise InvalidInput("Write a prompt for this campaign first.", field="prompt")
    return template


def _name(session: Session, campaign: Campaign, name: str | None) -> str:
    if name and name.strip():
        return " ".join(name.split())[:MAX_NAME_LENGTH]
    number = session.scalar(
        select(func.count()).select_from(Batch).where(Batch.campaign_id == campaign.id)
    )
    return f"Batch {(number or 0) + 1}"
