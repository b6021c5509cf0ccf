"""Reviews of many variants at once, and comparing some of them side by side."""

from __future__ import annotations

from uuid import UUID

from flask import Blueprint, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput
from app.models import ReviewState
from app.services import batches, campaigns, reviews
from app.services.variant_views import FINISHED, VariantFilter, VariantView, find_variants
from app.web import review_undo
from app.web.formatting import count
from app.web.media import media_url
from app.web.scope import page, signed_in
from app.web.selection import read_selection
from app.web.tiles import Filters, kinds_of, read_filters, spec_of, tile_of

blueprint = Blueprint("reviewing", __name__, url_prefix="/batches")

MAX_COMPARED = 16
DONE = {
    ReviewState.APPROVED: "approved",
    ReviewState.REJECTED: "rejected",
    ReviewState.PENDING: "open again",
}


@blueprint.post("/<uuid:batch_id>/reviews")
@signed_in
def create(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """Approve or reject what is ticked, or with `scope=all` all that the filter shows."""
    batch = batches.get_batch(session, actor, batch_id)
    selection = read_selection(request.values, batch)
    if not selection.ids and request.values.get("scope") != "all":
        raise InvalidInput("Tick some variants first.", field="variant")
    try:
        state = ReviewState(request.form.get("state", ""))
    except ValueError:
        raise InvalidInput("Choose to approve or to reject.", field="state") from None
    before = reviews.list_reviewed(session, actor, batch.id, selection.wanted)
    number = reviews.review_matching(
        session,
        actor,
        batch.id,
        selection.wanted,
        state=state,
        reason=request.form.get("reason", ""),
    )
    words = f"{count(number, 'variant')} {DONE[state]}."
    review_undo.remember(session, batch.id, words=words, before=before)
    return _back_to_gallery(batch.id, selection.filters, reviewed=1)


@blueprint.post("/<uuid:batch_id>/reviews/undo")
@signed_in
def undo(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """Take back what this person reviewed last in one go."""
    require(actor, Action.REVIEW)
    batch = batches.get_batch(session, actor, batch_id)
    number = review_undo.undo(session, actor, batch.id)
    if number:
        flash(f"{count(number, 'variant')} as before.", "success")
    else:
        flash("There was nothing to take back any more.", "info")
    return _back_to_gallery(batch.id, read_filters(request.form, spec_of(batch)))


def _back_to_gallery(batch_id: UUID, filters: Filters, **more: int) -> ResponseReturnValue:
    query = {**filters.query(), **more}
    return redirect(url_for("batches.show", batch_id=batch_id, **query, _anchor="gallery-title"))  # type: ignore[arg-type]


@blueprint.post("/<uuid:batch_id>/compare")
@signed_in
def choose(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """From the ticked variants to an address that can be kept and sent on."""
    batch = batches.get_batch(session, actor, batch_id)
    ids = read_selection(request.form, batch).ids
    if not 2 <= len(ids) <= MAX_COMPARED:
        raise InvalidInput(f"Tick 2 to {MAX_COMPARED} variants to compare them.", field="variant")
    chosen = [str(id_) for id_ in ids]
    return redirect(url_for("reviewing.compare", batch_id=batch.id, variant=chosen))


@blueprint.get("/<uuid:batch_id>/compare")
@signed_in
def compare(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """Up to sixteen variants that play in step; the control, the first by itself, stands first."""
    batch = batches.get_batch(session, actor, batch_id)
    ids = read_selection(request.args, batch).ids
    wanted = VariantFilter(ids=ids, states=FINISHED)
    views = find_variants(session, actor, batch.id, wanted, limit=MAX_COMPARED) if ids else []
    if not views:
        raise InvalidInput("Tick 2 variants or more to compare them.", field="variant")
    control = _control(views, request.args.get("control"))
    kinds = kinds_of(spec_of(batch))
    ordered = [control, *(view for view in views if view is not control)]
    tiles = [tile_of(view, kinds) for view in ordered]
    files = [view.artifact for view in ordered if view.artifact]
    common = {(chip.name, chip.text) for chip in tiles[0].chips}
    return page(
        "batches/compare.html",
        batch=batch,
        campaign=campaigns.get_campaign(session, actor, batch.campaign_id).campaign,
        compared=[
            {
                "tile": tile,
                "file_url": media_url(file.id, "file"),
                "media_type": file.media_type,
                "is_image": file.media_type.startswith("image/"),
                "differing": [chip for chip in tile.chips if (chip.name, chip.text) not in common],
                "control_url": url_for(
                    "reviewing.compare",
                    batch_id=batch.id,
                    variant=[str(id_) for id_ in ids],
                    control=str(tile.variant_id),
                ),
            }
            for tile, file in zip(tiles, files, strict=True)
        ],
    )


def _control(views: list[VariantView], asked: str | None) -> VariantView:
    return next((view for view in views if str(view.variant.id) == asked), views[0])
