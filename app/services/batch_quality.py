"""Another quality for a batch that is not launched yet."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import Conflict
from app.models import Batch, BatchState, Variant
from app.services.batch_creation import requote_batch
from app.services.scoping import get_in_workspace
from app.services.specs import BatchSpec
from engine.types import QualityProfile


def set_profile(
    session: Session, actor: Actor, batch_id: UUID, *, profile: QualityProfile
) -> Batch:
    """Quote the batch anew in this quality, with the campaign's newest prompt.

    Conflict once it is launched, has previews, or finishes drafts.
    """
    require(actor, Action.EDIT)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    session.refresh(batch, with_for_update={"key_share": True})
    spec = BatchSpec.model_validate(batch.spec)
    if batch.state is not BatchState.PREVIEWING:
        raise Conflict("The quality can be changed as long as a batch has not been launched.")
    if spec.drafts_batch_id is not None:
        raise Conflict("Drafts are finished in the quality in which they were begun.")
    if session.scalar(select(exists().where(Variant.batch_id == batch.id))):
        raise Conflict("This batch has previews already; make a new batch in the other quality.")
    settings = spec.settings.model_copy(update={"profile": profile})
    requote_batch(session, actor, batch, spec.model_copy(update={"settings": settings}))
    return batch
