"""The frame of every page: who asks, one transaction for the whole request, and page context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from uuid import UUID

from flask import Response, g, make_response, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Action, Actor
from app.auth import find_current_actor
from app.db import bind_workspace
from app.errors import Unauthenticated
from app.extensions import extensions
from app.models import Workspace
from app.services import webhooks_log


@dataclass(frozen=True, kw_only=True)
class PageFrame:
    """What the frame around every page shows; plain values that outlive the transaction."""

    workspace_name: str
    currency: str
    # Most variants in a batch, and so most rows in a table.
    max_variants: int
    role: str
    can_edit: bool
    can_review: bool
    can_manage: bool
    # Webhook endpoints that were switched off without a person: id and address.
    stopped_webhooks: tuple[tuple[UUID, str], ...]


THEMES = ("system", "light", "dark")

P = ParamSpec("P")
View = Callable[Concatenate[Session, Actor, P], ResponseReturnValue]


def signed_in(view: View[P]) -> Callable[P, ResponseReturnValue]:
    """Run `view(session, actor, ...)` in one transaction of the actor's workspace.

    The transaction commits before the answer leaves and only if the answer is no error (below
    400), so a form that comes back with messages has changed nothing.
    """

    @wraps(view)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> ResponseReturnValue:
        actor = current_actor()
        if actor is None:
            return _ask_to_sign_in()
        with extensions().database.workspace_scope(actor) as session:
            g.frame = _page_frame(session, actor)
            response = make_response(view(session, actor, *args, **kwargs))
            if response.status_code >= 400:
                session.rollback()
        return response

    return wrapper


def current_actor() -> Actor | None:
    with extensions().database.system_scope() as session:
        return find_current_actor(session)


def start_over(session: Session, actor: Actor) -> None:
    """Undo what a failed form did, and go on in a fresh transaction of the same workspace."""
    session.rollback()
    bind_workspace(session, actor)


def is_htmx() -> bool:
    """True for a request that wants a part of a page, not a whole one."""
    return request.headers.get("HX-Request") == "true"


def conditional(etag: str, make: Callable[[], Response]) -> Response:
    """The answer that `make` renders, or 304 without a body to whoever has this version."""
    response = Response(status=304) if etag in request.if_none_match else make()
    response.set_etag(etag)
    return response


def current_frame() -> PageFrame:
    """The frame of the page that is being made for somebody who is signed in."""
    frame: PageFrame = g.frame
    return frame


def page(template: str, *, status: int = 200, **context: Any) -> Response:
    """Render a template, framed, as the answer."""
    frame = {"frame": g.get("frame"), "theme": _theme(), "section": request.blueprint}
    return make_response(render_template(template, **frame, **context), status)


def _theme() -> str:
    theme = request.cookies.get("theme", "")
    return theme if theme in THEMES else THEMES[0]


def _page_frame(session: Session, actor: Actor) -> PageFrame:
    workspace = session.get_one(Workspace, actor.workspace_id)
    return PageFrame(
        workspace_name=workspace.name,
        currency=workspace.currency,
        max_variants=workspace.max_variants_per_batch,
        role=actor.role,
        can_edit=actor.may(Action.EDIT),
        can_review=actor.may(Action.REVIEW),
        can_manage=actor.may(Action.MANAGE),
        stopped_webhooks=tuple(
            (endpoint.id, endpoint.url) for endpoint in webhooks_log.list_notices(session, actor)
        ),
    )


def _ask_to_sign_in() -> ResponseReturnValue:
    if is_htmx():
        raise Unauthenticated("You have been signed out. Reload the page to sign in again.")
    target = request.full_path.rstrip("?") if request.method == "GET" else None
    return redirect(url_for("login.show", next=target))
