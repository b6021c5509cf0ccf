"""The page of API keys: made and shown once, listed with their last use, revoked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from flask import Blueprint, Response, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import ALLOWED, Action, Actor, Role, require
from app.errors import InvalidInput
from app.models import ApiKey
from app.services import api_keys
from app.web.scope import page, signed_in, start_over

blueprint = Blueprint("api_keys", __name__, url_prefix="/settings/api-keys")

ROLE_WORDS = {
    Role.VIEWER: "Read everything, change nothing.",
    Role.EDITOR: "Make campaigns, launch batches and order renders, which costs money.",
    Role.OWNER: "All of that, and webhook endpoints.",
}
SCOPE_WORDS = {
    Action.VIEW: "read everything",
    Action.EDIT: "campaigns, uploads, quotes",
    Action.LAUNCH: "batches and renders: spends money",
    Action.REVIEW: "approve and reject",
    Action.MANAGE: "webhook endpoints",
}
LIFETIMES = {"": "Never", "30": "In 30 days", "90": "In 90 days", "365": "In a year"}


@blueprint.get("")
@signed_in
def index(session: Session, actor: Actor) -> ResponseReturnValue:
    return page(
        "api_keys/index.html",
        keys=api_keys.list_api_keys(session, actor),
        scope_words=SCOPE_WORDS,
        now=datetime.now(UTC),
    )


@blueprint.get("/new")
@signed_in
def new(session: Session, actor: Actor) -> ResponseReturnValue:
    require(actor, Action.MANAGE)
    form = {"name": "", "role": Role.EDITOR.value, "expires": "90", "scopes": []}
    return _form_page(form)


@blueprint.post("/new")
@signed_in
def create(session: Session, actor: Actor) -> ResponseReturnValue:
    """Make the key and show it in the answer itself: it is kept nowhere readable."""
    require(actor, Action.MANAGE)
    form = {
        "name": request.form.get("name", ""),
        "role": request.form.get("role", ""),
        "expires": request.form.get("expires", ""),
        "scopes": request.form.getlist("scopes"),
    }
    try:
        key, secret = api_keys.issue_api_key(session, actor, **_read(form))
    except InvalidInput as error:
        start_over(session, actor)
        return _form_page(form, error=error)
    return _secret_page(key, secret)


@blueprint.post("/<uuid:key_id>/revoke")
@signed_in
def revoke(session: Session, actor: Actor, key_id: UUID) -> ResponseReturnValue:
    api_keys.revoke_api_key(session, actor, key_id)
    flash("Revoked. Whoever still sends it is refused from now on.", "success")
    return redirect(url_for("api_keys.index"))


def _read(form: Mapping[str, Any]) -> dict[str, Any]:
    """What the form says; InvalidInput names the field that offers no such choice."""
    if form["role"] not in set(Role):
        raise InvalidInput("Choose what the key may do.", field="role")
    if form["expires"] not in LIFETIMES:
        raise InvalidInput("Choose one of the times that are offered.", field="expires")
    role = Role(form["role"])
    scopes = [Action(item) for item in form["scopes"] if item in set(Action)]
    if beyond := [item for item in scopes if item not in ALLOWED[role]]:
        raise InvalidInput(
            f"A key with the role {role} cannot do this: {SCOPE_WORDS[beyond[0]]}.", field="scopes"
        )
    days = form["expires"]
    return {
        "name": form["name"],
        "role": role,
        "scopes": scopes,
        "expires_at": datetime.now(UTC) + timedelta(days=int(days)) if days else None,
    }


def _form_page(form: Mapping[str, Any], *, error: InvalidInput | None = None) -> Response:
    return page(
        "api_keys/form.html",
        status=error.status if error else 200,
        form=form,
        role_words=ROLE_WORDS,
        scope_words=SCOPE_WORDS,
        lifetimes=LIFETIMES,
        errors={error.field or "form": error.message} if error else {},
    )


def _secret_page(key: ApiKey, secret: str) -> Response:
    response = page(
        "api_keys/secret.html",
        key=key,
        secret=secret,
        example_url=url_for("v1.get_account", _external=True),
    )
    response.headers["Cache-Control"] = "no-store"
    return response
