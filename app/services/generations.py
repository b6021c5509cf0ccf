"""Single generations: a batch of one in the workspace's hidden campaign, launched at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from sqlalchemy import Select, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import NotFound
from app.models import Batch, BatchState, Campaign, ExpansionMode, JobState, ParameterKind
from app.services import batches, campaigns
from app.services.batches import VariantView
from app.services.parameters import clean_values, guess_kind
from app.services.progress import Progress
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from engine.types import RenderSettings

CAMPAIGN_NAME: Final = "API"
MAX_NAME_LENGTH: Final = 80
UNSUCCESSFUL: Final = (JobState.FAILED, JobState.QUARANTINED)


@dataclass(frozen=True, kw_only=True)
class GenerationOrder:
    """What to render; `values` fill the placeholders of the prompts."""

    prompt: str
    settings: RenderSettings
    negative_prompt: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[str, ParameterKind] = field(default_factory=dict)
    seed: int = 0
    force_render: bool = False
    passthrough: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A generation and how far it is; there is no variant before the batch is expanded."""

    batch: Batch
    progress: Progress
    view: VariantView | None


def create_generation(session: Session, actor: Actor, order: GenerationOrder) -> Batch:
    """Order one render; it is queued when the transaction commits."""
    require(actor, Action.LAUNCH)
    campaign_id = _hidden_campaign(session, actor, order.settings)
    campaigns.save_prompt_template(
        session, actor, campaign_id, text=order.prompt, negative_text=order.negative_prompt
    )
    spec = BatchSpec(
        parameters=tuple(
            SpecParameter(
                name=name,
                kind=order.kinds.get(name) or guess_kind(name),
                values=tuple(clean_values(name, [value])),
            )
            for name, value in order.values.items()
        ),
        mode=ExpansionMode.CARTESIAN,
        settings=SpecSettings(**order.settings.to_dict()),
        seed=order.seed,
        force_render=order.force_render,
        passthrough=dict(order.passthrough),
    )
    batch = batches.create_batch(
        session,
        actor,
        campaign_id=campaign_id,
        spec=spec,
        name=order.prompt[:MAX_NAME_LENGTH],
    )
    return batches.launch_batch(session, actor, batch.id)


def list_generations(
    session: Session, actor: Actor, *, limit: int, before: UUID | None = None
) -> list[Batch]:
    """The newest generations first; `before` is the last id of the page before."""
    require(actor, Action.VIEW)
    query = _generations(actor)
    if before is not None:
        query = query.where(Batch.id < before)
    return list(session.scalars(query.order_by(Batch.id.desc()).limit(limit)))


def get_generation(session: Session, actor: Actor, generation_id: UUID) -> Generation:
    """NotFound also for a batch that is no single generation."""
    require(actor, Action.VIEW)
    batch = session.scalars(_generations(actor).where(Batch.id == generation_id)).one_or_none()
    if batch is None:
        raise NotFound("There is no such generation in this workspace.")
    return view_generation(session, actor, batch)


def view_generation(session: Session, actor: Actor, batch: Batch) -> Generation:
    views = batches.list_variants(session, actor, batch.id, limit=1)
    return Generation(
        batch=batch,
        progress=batches.get_progress(session, actor, batch.id),
        view=views[0] if views else None,
    )


def cancel_generation(session: Session, actor: Actor, generation_id: UUID) -> Generation:
    """End a generation: at once if it waits, within a step if it is being rendered."""
    get_generation(session, actor, generation_id)
    batches.cancel_batch(session, actor, generation_id)
    return get_generation(session, actor, generation_id)


def state_of(generation: Generation) -> JobState:
    """One word for all: the state of the job, or what the batch says before there is one."""
    if generation.batch.state is BatchState.CANCELLED:
        return JobState.CANCELLED
    if generation.batch.state is BatchState.FAILED:
        return JobState.FAILED
    job = generation.view.job if generation.view else None
    if job is None or job.state in (JobState.SCHEDULED, JobState.RETRYABLE):
        return JobState.QUEUED
    return JobState.FAILED if job.state in UNSUCCESSFUL else job.state


def _generations(actor: Actor) -> Select[Batch]:
    return (
        select(Batch)
        .join(Campaign)
        .where(Batch.workspace_id == actor.workspace_id, Campaign.is_hidden)
    )


def _hidden_campaign(session: Session, actor: Actor, settings: RenderSettings) -> UUID:
    """The workspace's campaign of single generations, made when it is first needed."""
    hidden = select(Campaign.id).where(
        Campaign.workspace_id == actor.workspace_id, Campaign.is_hidden
    )
    found = session.scalar(hidden)
    if found is not None:
        return found
    campaign = {
        "workspace_id": actor.workspace_id,
        "name": CAMPAIGN_NAME,
        "settings": settings.to_dict(),
        "is_hidden": True,
        "created_at": func.now(),
    }
    # Of two that come first at once, the second waits and finds what the first has made.
    session.execute(
        insert(Campaign)
        .values(campaign)
        .on_conflict_do_nothing(
            index_elements=[Campaign.workspace_id], index_where=text("is_hidden")
        )
    )
    return session.scalars(hidden).one()
