"""What the store lost of a batch: said beside its export and gallery, and rendered again."""

from __future__ import annotations

from uuid import UUID

from flask import Blueprint, flash, redirect, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import Conflict, InvalidInput
from app.extensions import extensions
from app.services import batches, missing_files
from app.services.variant_views import FINISHED, VariantFilter
from app.web.exports import METHODS, choose
from app.web.formatting import count
from app.web.scope import page, signed_in, start_over

blueprint = Blueprint(
    "missing_files", __name__, url_prefix="/batches/<uuid:batch_id>/missing-files"
)

ALL_FINISHED = VariantFilter(states=FINISHED)


@blueprint.route("", methods=METHODS)
@signed_in
def show(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """How many files of the chosen variants are gone; empty when none is."""
    batch = batches.get_batch(session, actor, batch_id)
    wanted = choose(session, actor, batch).wanted
    missing = missing_files.look(session, actor, extensions().storage, batch.id, wanted)
    return page("batches/missing_files.html", batch=batch, missing=missing)


@blueprint.post("/render")
@signed_in
def render(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """A batch with a quote that renders all that is gone; nothing is rendered before its launch."""
    require(actor, Action.EDIT)
    batch = batches.get_batch(session, actor, batch_id)
    missing = missing_files.look(session, actor, extensions().storage, batch.id, ALL_FINISHED)
    try:
        if not missing.keys:
            raise Conflict("No file of this batch is missing, so there is nothing to render again.")
        # The web's own role may not change artifacts.
        with extensions().database.system_scope() as system:
            missing_files.forget(system, actor, missing.keys)
        made = missing_files.create_replacement(session, actor, batch.id)
    except (Conflict, InvalidInput) as error:
        start_over(session, actor)
        flash(error.message, "error")
        return redirect(url_for("batches.show", batch_id=batch_id))
    kept = missing.looked_at - missing.variant_count
    rendered = batch.variant_count - kept
    what = "is gone" if rendered == missing.variant_count else "is gone or was never finished"
    words = f"This renders and charges only what {what}: {count(rendered, 'variant')}."
    if kept:
        words += f" What is still there ({kept:,}) is taken over free of charge."
    flash(words, "info")
    return redirect(url_for("batches.show", batch_id=made.id))
