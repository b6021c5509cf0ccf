"""Taking variants home: a page to choose, the archive as a stream, a contact sheet."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote
from uuid import UUID

from flask import Blueprint, Response, request
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Actor
from app.errors import InvalidInput
from app.extensions import extensions
from app.models import Batch, ReviewState
from app.services import batches, campaigns, exports
from app.services.contact_sheets import MAX_VARIANTS, SheetItem, draw_sheet
from app.services.export_archive import stream_archive
from app.services.export_names import DEFAULT_PATTERN, describe_changes, safe_part
from app.services.variant_views import FINISHED, VariantFilter, count_variants, find_variants
from app.web.scope import is_htmx, page, signed_in
from app.web.selection import Selection, read_selection
from app.web.tiles import kinds_of, spec_of, tile_of

blueprint = Blueprint("exports", __name__, url_prefix="/batches")

MAX_SAMPLES = 3
METHODS = ["GET", "POST"]  # many ticked variants do not fit into an address
CHOICES = (("approved", "Approved"), ("succeeded", "All finished"), ("pending", "Not reviewed yet"))


@blueprint.route("/<uuid:batch_id>/export", methods=METHODS)
@signed_in
def show(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """What is taken home and how its files are named, with the first names as they will be."""
    batch = batches.get_batch(session, actor, batch_id)
    chosen = choose(session, actor, batch)
    pattern = request.values.get("pattern", DEFAULT_PATTERN)
    error, sample = None, None
    total = count_variants(session, actor, batch.id, chosen.wanted)
    try:
        sample = exports.collect(
            session, actor, batch.id, chosen.wanted, pattern=pattern, limit=MAX_SAMPLES
        )
    except InvalidInput as problem:
        error = problem if problem.field == "pattern" else None
    return page(
        "batches/export.html",
        # While somebody types, a pattern that is not ready is no failed request.
        status=error.status if error and not is_htmx() else 200,
        batch=batch,
        campaign=campaigns.get_campaign(session, actor, batch.campaign_id).campaign,
        selection=chosen,
        total=total,
        choices=_choices(session, actor, batch, chosen),
        pattern=pattern,
        placeholders=exports.placeholders(batch),
        names=[item.name for item in sample.items] if sample else [],
        changes=describe_changes(pattern),
        errors={"pattern": error.message} if error else {},
        max_sheet=MAX_VARIANTS,
    )


@blueprint.route("/<uuid:batch_id>/export.zip", methods=METHODS)
@signed_in
def archive(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """The archive; its rows are read before the answer begins, its files while it is sent."""
    batch = batches.get_batch(session, actor, batch_id)
    selection = read_selection(request.values, batch)
    pattern = request.values.get("pattern", DEFAULT_PATTERN)
    export = exports.collect(session, actor, batch.id, selection.wanted, pattern=pattern)
    response = Response(stream_archive(export, extensions().storage), mimetype="application/zip")
    name = safe_part(f"{export.campaign}_{export.batch}") or "export"
    response.headers["Content-Disposition"] = _attachment(f"{name}.zip")
    return response


@blueprint.route("/<uuid:batch_id>/contact-sheet.png", methods=METHODS)
@signed_in
def contact_sheet(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """One picture of the chosen variants, the first of them at most."""
    batch = batches.get_batch(session, actor, batch_id)
    campaign = campaigns.get_campaign(session, actor, batch.campaign_id).campaign
    wanted = read_selection(request.values, batch).wanted
    views = find_variants(session, actor, batch.id, wanted, limit=MAX_VARIANTS)
    if not views:
        raise InvalidInput("There is no finished variant among these.", field="variant")
    kinds = kinds_of(spec_of(batch))
    items = []
    for view in views:
        tile, artifact = tile_of(view, kinds), view.artifact
        assert artifact is not None
        mark = "" if tile.review == ReviewState.PENDING else f", {tile.review}"
        title = f"Variant {tile.number}{mark}"
        items.append(SheetItem(poster_key=artifact.poster_key, title=title, text=tile.summary))
    heading = f"{campaign.name} / {batch.name}"
    sheet = draw_sheet(items, extensions().storage, heading=heading)
    response = Response(sheet, mimetype="image/png")
    name = safe_part(f"{campaign.name}_{batch.name}_contact-sheet")
    response.headers["Content-Disposition"] = _attachment(f"{name}.png")
    return response


def choose(session: Session, actor: Actor, batch: Batch) -> Selection:
    """What was asked for; by itself the approved ones, or all where none is approved yet."""
    if "show" in request.values or "variant" in request.values:
        return read_selection(request.values, batch)
    approved = VariantFilter(states=FINISHED, review=ReviewState.APPROVED)
    is_any = count_variants(session, actor, batch.id, approved) > 0
    given = request.values.copy()
    given["show"] = "approved" if is_any else "succeeded"
    return read_selection(given, batch)


def _choices(
    session: Session, actor: Actor, batch: Batch, chosen: Selection
) -> list[dict[str, Any]]:
    """The usual choices with their counts."""
    reviews = {state.value: state for state in ReviewState}
    return [
        {
            "show": show,
            "label": label,
            "count": count_variants(
                session,
                actor,
                batch.id,
                VariantFilter(states=FINISHED, review=reviews.get(show)),
            ),
            "is_chosen": not chosen.ids
            and not chosen.filters.values
            and chosen.filters.show == show,
        }
        for show, label in CHOICES
    ]


def _attachment(name: str) -> str:
    """A Content-Disposition for a name in any script (RFC 6266)."""
    plain = name.encode("ascii", "ignore").decode() or "export"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"
