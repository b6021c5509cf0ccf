"""Drafts of a batch: the same renders, stopped half-way, which can be finished in full quality."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import Conflict, InvalidInput
from app.models import Batch, BatchState, Variant
from app.services.batch_creation import requote_batch
from app.services.scoping import get_in_workspace
from app.services.specs import BatchSpec, SpecSettings
from engine import registry


def with_drafts(settings: SpecSettings) -> SpecSettings:
    """The settings of drafts; InvalidInput where there are too few steps for any."""
    render = settings.to_render_settings().finished
    if render.num_inference_steps <= registry.MIN_DRAFT_STEP:
        raise InvalidInput(
            f"A render of {render.num_inference_steps} steps has no draft; take "
            f"{registry.MIN_DRAFT_STEP + 1} steps or more.",
            field="drafts",
        )
    return settings.model_copy(update={"draft_step": registry.default_draft_step(render)})


def set_drafts(session: Session, actor: Actor, batch_id: UUID, *, wants_drafts: bool) -> Batch:
    """Let a batch that is not launched yet render drafts first, or not; it is quoted anew.

    The new quote is made with the campaign's newest prompt.
    """
    require(actor, Action.EDIT)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    session.refresh(batch, with_for_update={"key_share": True})
    spec = BatchSpec.model_validate(batch.spec)
    if batch.state is not BatchState.PREVIEWING or spec.drafts_batch_id is not None:
        raise Conflict("Drafts can be chosen for a batch that has not been launched yet.")
    if wants_drafts == (spec.settings.draft_step is not None):
        return batch
    if session.scalar(select(exists().where(Variant.batch_id == batch.id))):
        raise Conflict("This batch has previews already; make a new batch like it for drafts.")
    settings = spec.settings.model_copy(update={"draft_step": None})
    if wants_drafts:
        settings = with_drafts(settings)
    spec = spec.model_copy(update={"settings": settings})
    requote_batch(session, actor, batch, spec)
    return batch
