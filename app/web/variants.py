"""One variant: its page, which follows its render, its place in the lightbox, and its review."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import Blueprint, Response, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Actor
from app.errors import InvalidInput
from app.models import ReviewState
from app.services import batches, campaigns, rerenders, reviews
from app.services.batches import VariantView
from app.services.variant_views import find_neighbours
from app.web.facts import provenance_facts, settings_facts, variant_facts
from app.web.media import download_url, media_url
from app.web.promotions import variant_context
from app.web.prompt_parts import from_stored
from app.web.rendering import rendering_context
from app.web.scope import conditional, is_htmx, page, signed_in, start_over
from app.web.sharing import lineage, work_facts
from app.web.tiles import Tile, kinds_of, spec_of, tile_of
from engine.types import RenderSettings

blueprint = Blueprint("variants", __name__, url_prefix="/variants")

# Where a variant is shown: on its own page, or over the gallery, whose tile changes with it.
PAGE, GALLERY = "page", "gallery"


@blueprint.get("/<uuid:variant_id>")
@signed_in
def show(session: Session, actor: Actor, variant_id: UUID) -> ResponseReturnValue:
    return _variant_page(session, actor, variant_id)


@blueprint.get("/<uuid:variant_id>/lightbox")
@signed_in
def lightbox(session: Session, actor: Actor, variant_id: UUID) -> ResponseReturnValue:
    view = batches.get_variant(session, actor, variant_id)
    return page("partials/lightbox.html", place=GALLERY, **_context(session, actor, view))


@blueprint.get("/<uuid:variant_id>/live")
@signed_in
def live(session: Session, actor: Actor, variant_id: UUID) -> ResponseReturnValue:
    """How far the render is, and all that it brings once it has ended; 304 without news."""
    view = batches.get_variant(session, actor, variant_id)
    context = _context(session, actor, view)
    context |= _details(view, context["tile"])
    return conditional(
        context["live_etag"],
        lambda: page("partials/variant_live.html", place=_place(), **context),
    )


@blueprint.post("/<uuid:variant_id>/rerender")
@signed_in
def rerender(session: Session, actor: Actor, variant_id: UUID) -> ResponseReturnValue:
    """Quote the variant once more with what was changed; the quote's page launches it."""
    view = batches.get_variant(session, actor, variant_id)
    typed = {name: request.form.get(name, "").strip() for name in ("prompt", "seed")}
    try:
        if "new_seed" in request.form:
            seed = rerenders.new_seed(view.variant.seed)
        elif typed["seed"].isdecimal():
            seed = int(typed["seed"])
        else:
            raise InvalidInput("The seed: enter a whole number.", field="seed")
        batch = rerenders.create_rerender(
            session, actor, variant_id, prompt=typed["prompt"], seed=seed
        )
    except InvalidInput as error:
        start_over(session, actor)
        return _variant_page(session, actor, variant_id, typed=typed, error=error)
    return redirect(url_for("batches.show", batch_id=batch.id))


@blueprint.post("/<uuid:variant_id>/review")
@signed_in
def review(session: Session, actor: Actor, variant_id: UUID) -> ResponseReturnValue:
    """Approve, reject, or take either back."""
    try:
        state = ReviewState(request.form.get("state", ""))
    except ValueError:
        raise InvalidInput("Choose to approve or to reject.", field="state") from None
    reviews.set_review(
        session, actor, [variant_id], state=state, reason=request.form.get("reason", "")
    )
    if not is_htmx():
        return redirect(url_for("variants.show", variant_id=variant_id))
    view = batches.get_variant(session, actor, variant_id)
    context = _context(session, actor, view)
    counts = reviews.count_reviews(session, actor, view.variant.batch_id)
    return page(
        "partials/reviewed.html",
        is_out_of_band=True,
        place=_place(),
        review_counts=counts,
        **context,
    )


def _place() -> str:
    return PAGE if request.values.get("place") == PAGE else GALLERY


def _variant_page(
    session: Session,
    actor: Actor,
    variant_id: UUID,
    *,
    typed: dict[str, str] | None = None,
    error: InvalidInput | None = None,
) -> Response:
    """The variant with its lineage; with what was typed where it could not be used."""
    view = batches.get_variant(session, actor, variant_id)
    context = _context(session, actor, view)
    previous_id, next_id = find_neighbours(session, view.variant)
    return page(
        "variants/show.html",
        status=error.status if error else 200,
        place=PAGE,
        campaign=campaigns.get_campaign(session, actor, context["batch"].campaign_id).campaign,
        previous_id=previous_id,
        next_id=next_id,
        negative_prompt=view.variant.negative_prompt,
        origin=rerenders.find_origin(session, actor, context["batch"]),
        rerenders=rerenders.list_rerenders(session, actor, view.variant),
        **variant_context(session, actor, view.variant),
        **context | _details(view, context["tile"]) | ({"typed": typed} if typed else {}),
        errors={"seed" if error.field == "seed" else "prompt": error.message} if error else {},
    )


def _details(view: VariantView, tile: Tile) -> dict[str, Any]:
    """Its values, its settings, and how it was made once it is."""
    variant, artifact = view.variant, view.artifact
    names = [chip.name for chip in tile.chips]
    made = [*provenance_facts(artifact), *work_facts(artifact)] if artifact else []
    return {
        "value_facts": variant_facts(variant, names),
        "fact_groups": [
            ("Settings", settings_facts(variant.settings, seed=variant.seed)),
            ("How it was made", made),
        ],
        "lineage": lineage(artifact) if artifact else [],
        "num_steps": RenderSettings.from_dict(variant.settings).last_step,
    }


def _context(session: Session, actor: Actor, view: VariantView) -> dict[str, Any]:
    variant, artifact = view.variant, view.artifact
    batch = batches.get_batch(session, actor, variant.batch_id)
    tile = tile_of(view, kinds_of(spec_of(batch)))
    is_image = artifact is not None and artifact.media_type.startswith("image/")
    url = media_url(artifact.id, "file") if artifact else None
    return {
        "batch": batch,
        "tile": tile,
        "prompt_parts": from_stored(variant.prompt, variant.slots),
        "typed": {"prompt": variant.prompt, "seed": str(variant.seed)},
        "reviewer": reviews.reviewer_name(session, view.review) if view.review else "",
        "review_reason": view.review.reason if view.review else "",
        "video_url": None if is_image else url,
        "image_url": url if is_image else None,
        "media_type": artifact.media_type if artifact else None,
        **rendering_context(session, view),
        "download_url": download_url(artifact, f"variant-{tile.number}") if artifact else None,
    }
