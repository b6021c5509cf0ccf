"""Drafts in the dashboard: launched first, looked at, and finished in full quality."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import Blueprint, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import Conflict, InvalidInput, NotFound
from app.models import Batch, Variant
from app.services import batches, draft_states, drafts, promotions
from app.services.promoted import find_draft_of, list_finished
from app.services.promotions import APPROVED
from app.services.variant_views import VariantFilter, count_variants
from app.web.scope import signed_in, start_over
from app.web.selection import read_selection
from app.web.tiles import spec_of

blueprint = Blueprint("promotions", __name__, url_prefix="/batches")

# What a form asks to be finished, beside the ticked variants and all that the filter shows.
APPROVED_SCOPE = "approved"


@blueprint.post("/<uuid:batch_id>/drafts")
@signed_in
def set_drafts(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """Quote the batch anew: as drafts, or in full quality at once."""
    require(actor, Action.EDIT)
    wants_drafts = request.form.get("drafts") == "1"
    try:
        drafts.set_drafts(session, actor, batch_id, wants_drafts=wants_drafts)
    except (InvalidInput, Conflict) as error:
        start_over(session, actor)
        flash(error.message, "error")
    return redirect(url_for("batches.show", batch_id=batch_id))


@blueprint.post("/<uuid:batch_id>/promotions")
@signed_in
def create(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """Quote what finishing these drafts costs; the page of the quote launches it."""
    require(actor, Action.EDIT)
    batch = batches.get_batch(session, actor, batch_id)
    try:
        made = promotions.create_promotion(session, actor, batch.id, _wanted(batch))
    except (InvalidInput, Conflict, NotFound) as error:
        start_over(session, actor)
        flash(error.message, "error")
        return redirect(url_for("batches.show", batch_id=batch_id))
    return redirect(url_for("batches.show", batch_id=made.id))


def batch_context(session: Session, actor: Actor, batch: Batch) -> dict[str, Any]:
    """What the page of a batch shows of drafts: its own, or those that it finishes."""
    spec = spec_of(batch)
    if spec.settings.draft_step is None:
        drafts_batch_id = spec.drafts_batch_id
        return {"is_draft": False, "drafts_batch_id": drafts_batch_id and UUID(drafts_batch_id)}
    return {
        "is_draft": True,
        "draft_step": spec.settings.draft_step,
        "num_steps": spec.settings.num_inference_steps,
        "approved_count": count_variants(session, actor, batch.id, APPROVED),
        "kept": draft_states.count_kept(session, batch.id),
    }


def variant_context(session: Session, actor: Actor, variant: Variant) -> dict[str, Any]:
    """The draft that a variant comes from, and what a draft was finished as."""
    return {
        "draft": find_draft_of(session, actor, variant),
        "finished": list_finished(session, actor, variant),
        "is_draft": variant.settings.get("draft_step") is not None,
    }


def _wanted(batch: Batch) -> VariantFilter:
    if request.values.get("scope") == APPROVED_SCOPE:
        return APPROVED
    selection = read_selection(request.values, batch)
    if selection.ids:
        return VariantFilter(ids=selection.ids)
    if request.values.get("scope") != "all":
        raise InvalidInput("Tick some drafts first.", field="variant")
    return selection.wanted
