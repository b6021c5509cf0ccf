"""The page of blocked terms: one per line to edit, what is blocked now, and where it is in use."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from flask import Blueprint, Response, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import AppError, Conflict, InvalidInput
from app.models import BlockedTerm
from app.services import blocked_terms
from app.services.blocked_terms import REASON_MARK
from app.services.term_index import Term
from app.web.scope import page, signed_in, start_over

blueprint = Blueprint("blocked_terms", __name__, url_prefix="/settings/blocked-terms")


@blueprint.get("")
@signed_in
def index(session: Session, actor: Actor) -> ResponseReturnValue:
    return _page(session, actor)


@blueprint.post("")
@signed_in
def update(session: Session, actor: Actor) -> ResponseReturnValue:
    """Make the typed lines the list, unless somebody has changed it since the page was opened."""
    require(actor, Action.EDIT)
    typed = request.form.get("terms", "")
    try:
        if request.form.get("seen") != _seen(blocked_terms.list_blocked_terms(session, actor)):
            raise Conflict(
                "Somebody has changed the list since you opened this page. What is blocked now "
                "stands below; save again to put your lines in its place."
            )
        rows = blocked_terms.replace_blocked_terms(session, actor, _read(typed))
    except (InvalidInput, Conflict) as error:
        start_over(session, actor)
        return _page(session, actor, typed=typed, error=error)
    count = "1 term is" if len(rows) == 1 else f"{len(rows):,} terms are"
    flash(f"Saved. {count} blocked from now on." if rows else "Nothing is blocked now.", "success")
    return redirect(url_for("blocked_terms.index"))


def _page(
    session: Session, actor: Actor, *, typed: str | None = None, error: AppError | None = None
) -> Response:
    rows = blocked_terms.list_blocked_terms(session, actor)
    return page(
        "blocked_terms/index.html",
        status=error.status if error else 200,
        terms=rows,
        uses=blocked_terms.list_campaign_uses(session, actor),
        can_edit=actor.may(Action.EDIT),
        typed=_written(rows) if typed is None else typed,
        seen=_seen(rows),
        error=error.message if error else "",
        max_terms=blocked_terms.MAX_TERMS,
    )


def _read(text: str) -> list[Term]:
    """A term per line that is not blank; what follows the mark is its reason."""
    parts = (line.partition(REASON_MARK) for line in text.splitlines() if line.strip())
    return [Term(text=term, reason=reason) for term, _, reason in parts]


def _written(rows: Sequence[BlockedTerm]) -> str:
    """What `_read` reads back."""
    return "\n".join(
        f"{row.term} {REASON_MARK} {row.reason}" if row.reason else row.term for row in rows
    )


def _seen(rows: Sequence[BlockedTerm]) -> str:
    return hashlib.sha256(_written(rows).encode()).hexdigest()[:16]
