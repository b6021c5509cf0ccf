"""Finished renders of drafts as they are stored: which draft each is of, and what it renders."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput
from app.models import Batch, BatchState, Variant
from app.services.variants import VariantDraft, variant_key
from engine import registry
from engine.types import PromptSlot, RenderSettings

# A draft counts as finished from the launch on, so that asking again changes nothing.
LAUNCHED_STATES = (
    BatchState.EXPANDING,
    BatchState.RUNNING,
    BatchState.PAUSED,
    BatchState.COMPLETED,
)


def find_draft_of(session: Session, actor: Actor, variant: Variant) -> Variant | None:
    """The draft that a variant is the finished render of."""
    require(actor, Action.VIEW)
    if variant.draft_id is None:
        return None
    return session.scalars(
        select(Variant).where(
            Variant.id == variant.draft_id, Variant.workspace_id == actor.workspace_id
        )
    ).one_or_none()


def list_finished(session: Session, actor: Actor, draft: Variant) -> list[Variant]:
    """The renders in full quality of a draft whose batches were launched, the newest first."""
    require(actor, Action.VIEW)
    return list(
        session.scalars(
            select(Variant)
            .join(Batch, Batch.id == Variant.batch_id)
            .where(
                Variant.draft_id == draft.id,
                Variant.workspace_id == actor.workspace_id,
                Batch.state.in_(LAUNCHED_STATES),
            )
            .order_by(Variant.id.desc())
        )
    )


def read_promoted(session: Session, batch: Batch) -> list[VariantDraft]:
    """The variants of a batch that finishes drafts, in order; they are there with its quote.

    InvalidInput where the model has become another one since.
    """
    rows = session.scalars(
        select(Variant).where(Variant.batch_id == batch.id).order_by(Variant.ordinal)
    )
    drafts = [draft_of_row(row) for row in rows]
    weights = registry.weights_fingerprint(drafts[0].settings.model_id)
    if any(key_of(draft, draft.settings, weights) != draft.variant_key for draft in drafts):
        raise InvalidInput(
            "The weights of the model, or the engine, have changed since this was quoted. Make "
            "new drafts."
        )
    return drafts


def draft_of_row(row: Variant) -> VariantDraft:
    """What a variant renders, from its row."""
    return VariantDraft(
        ordinal=row.ordinal,
        values=row.values,
        passthrough=row.passthrough,
        row_id=row.row_id,
        prompt=row.prompt,
        negative_prompt=row.negative_prompt,
        slots=tuple(PromptSlot.from_dict(slot) for slot in row.slots),
        seed=row.seed,
        settings=RenderSettings.from_dict(row.settings),
        variant_key=row.variant_key,
    )


def key_of(draft: VariantDraft, settings: RenderSettings, weights: str) -> str:
    """The key that the pixels of a variant have with these settings and weights."""
    return variant_key(
        prompt=draft.prompt,
        negative_prompt=draft.negative_prompt,
        seed=draft.seed,
        settings=settings,
        weights=weights,
    )


def draft_ids(session: Session, batch: Batch) -> dict[int, UUID | None]:
    """The draft of each variant of such a batch, by ordinal."""
    rows = session.execute(
        select(Variant.ordinal, Variant.draft_id).where(Variant.batch_id == batch.id)
    )
    return {row.ordinal: row.draft_id for row in rows}
