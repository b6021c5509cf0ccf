"""Batch pages: the quote before launch, live progress after it, and what a person may do."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from flask import Blueprint, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session
from werkzeug.exceptions import NotFound as NoSuchPage

from app.access import Actor
from app.errors import Conflict, InvalidInput
from app.models import Batch, BatchState
from app.services import batches, campaigns, uploads
from app.web import uploads as upload_pages
from app.web.batch_specs import spec_from_form, spec_from_upload
from app.web.campaign_form import form_of
from app.web.gallery import gallery_context
from app.web.progress import progress_context
from app.web.promotions import batch_context
from app.web.quotes import quote_context
from app.web.review_undo import last_words
from app.web.scope import conditional, page, signed_in, start_over
from app.web.sharing import MAX_INLINE_VARIANTS, sharing_context
from app.web.spend_caps import read_spend_cap
from app.web.upload_prices import chosen_columns

blueprint = Blueprint("batches", __name__)


def _launch(session: Session, actor: Actor, batch_id: UUID) -> Batch:
    cap_micros = read_spend_cap(request.form)
    return batches.launch_batch(session, actor, batch_id, spend_cap_micros=cap_micros)


Verb = Callable[[Session, Actor, UUID], object]
VERBS: dict[str, tuple[Verb, str]] = {
    # A launched batch shows by itself that it is under way.
    "launch": (_launch, ""),
    "pause": (batches.pause_batch, "Paused. What is being rendered now is still finished."),
    "resume": (batches.resume_batch, "Going on."),
    "cancel": (batches.cancel_batch, "Cancelled. What is finished stays yours."),
    "retry": (batches.retry_failed, "The failed variants are tried again."),
}
# What somebody asked for who did not see that it is done: no error, and nothing is done twice.
ALREADY = {
    ("launch", BatchState.EXPANDING): "It is already running.",
    ("launch", BatchState.RUNNING): "It is already running.",
    ("launch", BatchState.PAUSED): "It is already launched, and paused.",
    ("launch", BatchState.COMPLETED): "It was already launched, and is finished.",
    ("pause", BatchState.PAUSED): "It is already paused.",
    ("pause", BatchState.COMPLETED): "It was already finished.",
    ("resume", BatchState.EXPANDING): "It is already going on.",
    ("resume", BatchState.RUNNING): "It is already going on.",
    ("cancel", BatchState.CANCELLED): "It is already cancelled.",
}


@blueprint.post("/campaigns/<uuid:campaign_id>/batches")
@signed_in
def create(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    """A new batch from the campaign's saved values."""
    details = campaigns.get_campaign(session, actor, campaign_id)
    form = form_of(details)
    try:
        batch = batches.create_batch(
            session, actor, campaign_id=campaign_id, spec=spec_from_form(form)
        )
    except InvalidInput as error:
        start_over(session, actor)
        flash(error.message, "error")
        return redirect(url_for("campaigns.edit", campaign_id=campaign_id))
    return _go_to(batch)


# The address of the page that the form stands on, so that a refusal stands there too.
@blueprint.post("/uploads/<uuid:upload_id>")
@signed_in
def create_from_upload(session: Session, actor: Actor, upload_id: UUID) -> ResponseReturnValue:
    """A new batch from the rows of an upload, with the columns that were chosen."""
    upload = uploads.get_upload(session, actor, upload_id)
    details = campaigns.get_campaign(session, actor, upload.campaign_id)
    form, columns = form_of(details), chosen_columns(request.form, details)
    try:
        batch = batches.create_batch(
            session,
            actor,
            campaign_id=upload.campaign_id,
            spec=spec_from_upload(form, upload, columns),
            upload_id=upload.id,
        )
    except InvalidInput as error:
        start_over(session, actor)
        return upload_pages.mapping_page(session, actor, upload_id, columns=columns, error=error)
    return _go_to(batch)


@blueprint.get("/batches/<uuid:batch_id>")
@signed_in
def show(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """The quote of a batch that has not been launched, the progress and gallery of one that has."""
    batch = batches.get_batch(session, actor, batch_id)
    campaign = campaigns.get_campaign(session, actor, batch.campaign_id).campaign
    if batch.state is BatchState.PREVIEWING:
        context = quote_context(session, actor, batch)
        return page("batches/quote.html", batch=batch, campaign=campaign, **context)
    words, can_undo = last_words(batch.id) if "reviewed" in request.args else ("", False)
    is_small = batch.variant_count <= MAX_INLINE_VARIANTS
    return page(
        "batches/show.html",
        batch=batch,
        campaign=campaign,
        reviewed_words=words,
        can_undo=can_undo,
        **(sharing_context(session, actor, batch) if is_small else {"nodes": []}),
        **batch_context(session, actor, batch),
        **progress_context(session, actor, batch),
        **gallery_context(session, actor, batch, request.args),
    )


@blueprint.get("/batches/<uuid:batch_id>/progress")
@signed_in
def progress(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """The progress part alone; 304 as long as nothing has changed."""
    batch = batches.get_batch(session, actor, batch_id)
    context = progress_context(session, actor, batch)
    return conditional(
        context["progress_etag"],
        lambda: page("partials/batch_progress.html", batch=batch, **context),
    )


@blueprint.get("/batches/<uuid:batch_id>/sharing")
@signed_in
def sharing(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """The sharing tree alone, for batches that are too large to draw it unasked."""
    batch = batches.get_batch(session, actor, batch_id)
    return page("partials/sharing.html", batch=batch, **sharing_context(session, actor, batch))


@blueprint.get("/batches/<uuid:batch_id>/tiles")
@signed_in
def tiles(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """One block of the gallery; 304 as long as none of its tiles has changed."""
    batch = batches.get_batch(session, actor, batch_id)
    context = gallery_context(session, actor, batch, request.args)
    return conditional(
        context["block_etag"], lambda: page("partials/tiles.html", batch=batch, **context)
    )


@blueprint.post("/batches/<uuid:batch_id>/duplicate")
@signed_in
def duplicate(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """The same batch once more, with a quote of its own."""
    try:
        return _go_to(batches.duplicate_batch(session, actor, batch_id))
    except InvalidInput as error:
        start_over(session, actor)
        flash(error.message, "error")
        return redirect(url_for("batches.show", batch_id=batch_id))


@blueprint.post("/batches/<uuid:batch_id>/<verb>")
@signed_in
def act(session: Session, actor: Actor, batch_id: UUID, verb: str) -> ResponseReturnValue:
    """Launch, pause, resume, cancel, or retry what failed."""
    if verb not in VERBS:
        raise NoSuchPage
    perform, done = VERBS[verb]
    try:
        perform(session, actor, batch_id)
    except Conflict:
        start_over(session, actor)
        words = ALREADY.get((verb, batches.get_batch(session, actor, batch_id).state))
        if words is None:
            raise
        flash(words, "info")
        return redirect(url_for("batches.show", batch_id=batch_id))
    except InvalidInput as error:
        start_over(session, actor)
        flash(error.message, "error")
        return redirect(url_for("batches.show", batch_id=batch_id))
    if done:
        flash(done, "success")
    return redirect(url_for("batches.show", batch_id=batch_id))


def _go_to(batch: Batch) -> ResponseReturnValue:
    return redirect(url_for("batches.show", batch_id=batch.id))
