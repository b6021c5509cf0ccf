"""The life of a batch as people steer it: create with a quote, launch, pause, resume, cancel."""

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
    JobState,
    PromptTemplate,
    Quote,
    RenderJob,
    Upload,
    Workspace,
)
from app.queues import Queue, ring_after_commit
from app.services import calibrations, completion, quotes
from app.services.batch_checks import (
    check_placeholders,
    check_upload,
    check_upload_values,
    checked_count,
    checked_requests,
)
from app.services.expanding import open_source
from app.services.jobs import transition
from app.services.planning import find_varying
from app.services.progress import (
    UNSUCCESSFUL_STATES,
    FailureSummary,
    Progress,
    get_progress,
    list_failures,
)
from app.services.quotes import QuoteValue
from app.services.scoping import get_in_workspace
from app.services.specs import BatchSpec, check_settings
from app.services.variant_views import VariantView, get_variant, list_variants
from app.storage import storage_from_url
from engine.errors import CheckpointError, InvalidRequest

__all__ = [
    "FailureSummary",
    "Progress",
    "VariantView",
    "cancel_batch",
    "create_batch",
    "duplicate_batch",
    "estimate_batch",
    "get_batch",
    "get_progress",
    "get_variant",
    "launch_batch",
    "list_batches",
    "list_failures",
    "list_variants",
    "pause_batch",
    "resume_batch",
    "retry_failed",
]

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
    if upload_id is not None:
        upload = get_in_workspace(session, actor, Upload, upload_id)
        check_upload(upload, campaign, spec)
        check_upload_values(storage_from_url(config_of(session)), upload, template, spec)
    workspace = session.get_one(Workspace, actor.workspace_id)
    checked_count(spec, workspace)
    try:
        source = open_source(session, spec, prompt_template_id=template.id, upload_id=upload_id)
        return quotes.estimate(
            spec,
            checked_requests(source),
            rate_micros_per_unit=workspace.rate_micros_per_unit,
            currency=workspace.currency,
            varying=find_varying(spec, source.read_rows),
            measured=calibrations.load_with_shipped(session, spec.settings.model_id),
        )
    except CheckpointError as error:
        raise ServiceUnavailable(f"The model's weights cannot be used: {error}") from error
    except InvalidRequest as error:
        raise InvalidInput(str(error), field=error.field) from error


def get_batch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    require(actor, Action.VIEW)
    return get_in_workspace(session, actor, Batch, batch_id)


def list_batches(
    session: Session,
    actor: Actor,
    *,
    campaign_id: UUID | None = None,
    limit: int = 50,
    before: UUID | None = None,
) -> list[Batch]:
    """The newest batches first; `before` is the last id of the page before (ids are in time).

    Single generations, the batches of a hidden campaign, are left out unless it is asked for.
    """
    require(actor, Action.VIEW)
    query = select(Batch).where(Batch.workspace_id == actor.workspace_id)
    if campaign_id is not None:
        query = query.where(Batch.campaign_id == campaign_id)
    else:
        query = query.join(Campaign).where(Campaign.is_hidden.is_(False))
    if before is not None:
        query = query.where(Batch.id < before)
    return list(session.scalars(query.order_by(Batch.id.desc()).limit(limit)))


def launch_batch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    """Start the work that the quote prices."""
    batch = _change(session, actor, batch_id, verb="launched", sources=(BatchState.PREVIEWING,))
    batch.state = BatchState.EXPANDING
    batch.launched_at = session.scalar(select(func.now()))
    session.flush()
    ring_after_commit(session, Queue.CONTROL)
    return batch


def pause_batch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    """Nothing new is claimed; what is being rendered is finished."""
    sources = (BatchState.EXPANDING, BatchState.RUNNING)
    batch = _change(session, actor, batch_id, verb="paused", sources=sources)
    batch.state = BatchState.PAUSED
    session.flush()
    return batch


def resume_batch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    """Go on where `pause_batch` stopped, be it the expansion or the renders."""
    batch = _change(session, actor, batch_id, verb="resumed", sources=(BatchState.PAUSED,))
    is_expanded = batch.expanded_at is not None
    batch.state = BatchState.RUNNING if is_expanded else BatchState.EXPANDING
    session.flush()
    ring_after_commit(session, Queue.CONTROL)
    return batch


def cancel_batch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    """End a batch: at once for what waits, within a step for renders; results are kept.

    Of a very large batch some waiting jobs are cancelled in the background.
    """
    sources = (
        BatchState.PREVIEWING,
        BatchState.EXPANDING,
        BatchState.RUNNING,
        BatchState.PAUSED,
    )
    _check(session, actor, batch_id, verb="cancelled", sources=sources)
    completion.cancel_waiting(session, batch_id)
    batch = _change(session, actor, batch_id, verb="cancelled", sources=sources)
    batch.state = BatchState.CANCELLED
    session.flush()
    completion.end_cancelled(session, batch_id)
    session.refresh(batch)
    ring_after_commit(session, Queue.CONTROL)
    return batch


def duplicate_batch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    """A new batch of the same values, settings and upload, quoted anew with the newest prompt.

    What was finished before is not rendered or charged again.
    """
    batch = get_batch(session, actor, batch_id)
    return create_batch(
        session,
        actor,
        campaign_id=batch.campaign_id,
        spec=BatchSpec.model_validate(batch.spec),
        upload_id=batch.upload_id,
    )


def retry_failed(session: Session, actor: Actor, batch_id: UUID) -> int:
    """Give failed and quarantined jobs all their tries again; returns how many."""
    sources = (
        BatchState.EXPANDING,
        BatchState.RUNNING,
        BatchState.PAUSED,
        BatchState.COMPLETED,
    )
    batch = _change(session, actor, batch_id, verb="retried", sources=sources)
    moved = transition(
        session,
        RenderJob.batch_id == batch.id,
        to=JobState.QUEUED,
        sources=UNSUCCESSFUL_STATES,
        changes={"start_count": 0, "scheduled_at": func.now()},
    )
    if not moved:
        raise Conflict("No variant of this batch has failed, so there is nothing to try again.")
    if batch.state is BatchState.COMPLETED:
        batch.state = BatchState.RUNNING
        batch.completed_at = None
        session.flush()
    ring_after_commit(session, Queue.CONTROL)
    return len(moved)


def _change(
    session: Session, actor: Actor, batch_id: UUID, *, verb: str, sources: tuple[BatchState, ...]
) -> Batch:
    """The batch, locked, if the actor may spend money and it is in one of the states."""
    batch = _check(session, actor, batch_id, verb=verb, sources=())
    session.refresh(batch, with_for_update={"key_share": True})
    return _check(session, actor, batch_id, verb=verb, sources=sources)


def _check(
    session: Session, actor: Actor, batch_id: UUID, *, verb: str, sources: tuple[BatchState, ...]
) -> Batch:
    """The batch, if the actor may spend money and it is in one of the states (any, if none)."""
    require(actor, Action.LAUNCH)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    if sources and batch.state not in sources:
        raise Conflict(f"A batch that is {batch.state.value} cannot be {verb}.")
    return batch


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
