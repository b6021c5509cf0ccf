"""Share links: their page for members, and what the people who were sent one see."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from uuid import UUID

from flask import Blueprint, Response, flash, make_response, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput, NotFound
from app.extensions import extensions
from app.models import Batch, Campaign, ReviewState, ShareLink
from app.services import batches, campaigns, reviews, share_links
from app.services.scoping import get_in_workspace
from app.services.variant_views import VariantView, find_variants
from app.web.errors import error_response
from app.web.formatting import duration
from app.web.media import send_artifact
from app.web.scope import is_htmx, page, signed_in, start_over
from app.web.tiles import BLOCK_SIZE, kinds_of, spec_of, tile_of

blueprint = Blueprint("share_links", __name__)

DAYS = ((7, "a week"), (30, "30 days"), (90, "90 days"))
# Kept for less time than it takes to regret a link.
KEEP_MEDIA = "private, max-age=300"
GONE = "This link has expired or was taken back. Ask whoever sent it for a new one."

P = ParamSpec("P")
SharedView = Callable[Concatenate[Session, ShareLink, P], ResponseReturnValue]


@blueprint.get("/batches/<uuid:batch_id>/share")
@signed_in
def index(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    require(actor, Action.EDIT)
    return _links_page(session, actor, batch_id)


@blueprint.post("/batches/<uuid:batch_id>/share")
@signed_in
def create(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    """Make a link, which is shown this once."""
    form = {name: request.form.get(name, "") for name in ("name", "days", "can_review")}
    try:
        _, token = share_links.create_link(
            session,
            actor,
            batch_id,
            name=form["name"],
            can_review=bool(form["can_review"]),
            days=int(form["days"]) if form["days"].isdecimal() else 0,
        )
    except InvalidInput as error:
        start_over(session, actor)
        return _links_page(session, actor, batch_id, form=form, error=error)
    url = f"{extensions().config.base_url}{url_for('share_links.show', token=token)}"
    return _links_page(session, actor, batch_id, new_url=url)


@blueprint.post("/batches/<uuid:batch_id>/share/<uuid:link_id>/revoke")
@signed_in
def revoke(session: Session, actor: Actor, batch_id: UUID, link_id: UUID) -> ResponseReturnValue:
    share_links.revoke_link(session, actor, batch_id, link_id)
    flash("The link no longer works.", "success")
    return redirect(url_for("share_links.index", batch_id=batch_id))


def shared(view: SharedView[P]) -> Callable[..., ResponseReturnValue]:
    """Run `view(session, link, ...)` for whoever has the token, as narrow as the link allows."""

    @wraps(view)
    def wrapper(token: str, *args: P.args, **kwargs: P.kwargs) -> ResponseReturnValue:
        throttle, name = extensions().login_throttle, f"share {request.remote_addr}"
        wait_s = throttle.blocked_for(name)
        allowance = extensions().rate_limiter.count(f"share:{request.remote_addr}")
        if wait_s or allowance.is_exceeded:
            wait = duration(wait_s or allowance.reset_s)
            return _unlisted(error_response(429, f"Wait {wait} and try again."))
        with extensions().database.system_scope() as session:
            link = share_links.find_link(session, token)
        if link is None:
            throttle.record_failure(name)
            return _unlisted(error_response(404, GONE))
        with extensions().database.workspace_scope(share_links.actor_of_link(link)) as session:
            response = make_response(view(session, link, *args, **kwargs))
            if response.status_code >= 400:
                session.rollback()
        return _unlisted(response)

    return wrapper


@blueprint.get("/r/<token>")
@shared
def show(session: Session, link: ShareLink) -> ResponseReturnValue:
    """The finished variants of the batch, page by page."""
    token = str((request.view_args or {})["token"])
    actor = share_links.actor_of_link(link)
    batch = get_in_workspace(session, actor, Batch, link.batch_id)
    after = request.args.get("after", default=-1, type=int)
    views = find_variants(
        session,
        actor,
        batch.id,
        share_links.shared_variants(link),
        limit=BLOCK_SIZE + 1,
        after_ordinal=after,
    )
    shown = views[:BLOCK_SIZE]
    return page(
        "share/show.html",
        token=token,
        link=link,
        batch=batch,
        campaign=get_in_workspace(session, actor, Campaign, batch.campaign_id),
        items=[_item(view, batch, token) for view in shown],
        is_first=after < 0,
        next_after=shown[-1].variant.ordinal if len(views) > BLOCK_SIZE else None,
    )


@blueprint.post("/r/<token>/reviews/<uuid:variant_id>")
@shared
def review(session: Session, link: ShareLink, variant_id: UUID) -> ResponseReturnValue:
    token = str((request.view_args or {})["token"])
    try:
        state = ReviewState(request.form.get("state", ""))
    except ValueError:
        raise InvalidInput("Choose to approve or to reject.", field="state") from None
    reason = request.form.get("reason", "")
    share_links.review_by_link(session, link, variant_id, state=state, reason=reason)
    if not is_htmx():
        return redirect(url_for("share_links.show", token=token, _anchor=f"variant-{variant_id}"))
    actor = share_links.actor_of_link(link)
    view = batches.get_variant(session, actor, variant_id)
    batch = get_in_workspace(session, actor, Batch, link.batch_id)
    item = _item(view, batch, token)
    return page("share/item.html", token=token, link=link, item=item)


@blueprint.get("/r/<token>/media/<uuid:artifact_id>/<any(file, poster):part>")
@shared
def media(session: Session, link: ShareLink, artifact_id: UUID, part: str) -> ResponseReturnValue:
    artifact = share_links.get_shared_artifact(session, link, artifact_id)
    response = send_artifact(artifact, part)
    response.headers["Cache-Control"] = KEEP_MEDIA
    return response


def _item(view: VariantView, batch: Batch, token: str) -> dict[str, Any]:
    if view.artifact is None:
        raise NotFound("This variant is not finished.")
    artifact = view.artifact
    return {
        "tile": tile_of(view, kinds_of(spec_of(batch))),
        "is_image": artifact.media_type.startswith("image/"),
        "media_type": artifact.media_type,
        "reason": view.review.reason if view.review else "",
        **{
            f"{part}_url": url_for(
                "share_links.media", token=token, artifact_id=artifact.id, part=part
            )
            for part in ("file", "poster")
        },
    }


def _links_page(
    session: Session,
    actor: Actor,
    batch_id: UUID,
    *,
    form: dict[str, str] | None = None,
    error: InvalidInput | None = None,
    new_url: str | None = None,
) -> Response:
    batch = batches.get_batch(session, actor, batch_id)
    counts = reviews.count_reviews(session, actor, batch_id)
    return page(
        "share/index.html",
        status=error.status if error else 200,
        batch=batch,
        campaign=campaigns.get_campaign(session, actor, batch.campaign_id).campaign,
        review_counts=counts,
        shown_count=counts.approved + counts.pending,
        links=share_links.list_links(session, actor, batch_id),
        days=DAYS,
        form=form or {"name": "", "days": "30", "can_review": ""},
        errors={error.field or "name": error.message} if error else {},
        new_url=new_url,
    )


def _unlisted(answer: ResponseReturnValue) -> Response:
    response = make_response(answer)
    response.headers["X-Robots-Tag"] = "noindex, nofollow"
    return response
