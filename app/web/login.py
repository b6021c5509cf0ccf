"""First-run set-up, sign-in and sign-out."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from flask import Blueprint, Response, redirect, request, url_for
from flask.typing import ResponseReturnValue

from app.auth import sign_in, sign_out
from app.errors import AppError, Conflict, Unauthenticated
from app.extensions import extensions
from app.services import passwords, workspaces
from app.web.formatting import duration
from app.web.scope import page

blueprint = Blueprint("login", __name__)

LOCAL_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
SETUP_FIELDS = ("workspace_name", "owner_name", "email")


@blueprint.get("/setup")
def setup() -> ResponseReturnValue:
    with extensions().database.system_scope() as session:
        if workspaces.has_any_workspace(session):
            return redirect(url_for("login.show"))
    return _setup_page(form={}, errors={})


@blueprint.post("/setup")
def create() -> ResponseReturnValue:
    """Create the first workspace with its owner, who is signed in at once."""
    form = {name: request.form.get(name, "").strip() for name in SETUP_FIELDS}
    password = request.form.get("password", "")
    try:
        with extensions().database.system_scope() as session:
            if workspaces.has_any_workspace(session):
                raise Conflict("Adloom is already set up. Sign in instead.")
            _, owner = workspaces.create_workspace(
                session,
                name=form["workspace_name"],
                owner_name=form["owner_name"],
                email=form["email"],
                password=password,
            )
    except AppError as error:
        errors = {error.field or "form": error.message}
        return _setup_page(status=error.status, form=form, errors=errors)
    sign_in(user_id=owner.id, session_version=owner.session_version)
    return redirect(url_for("campaigns.index"))


@blueprint.get("/login")
def show() -> ResponseReturnValue:
    with extensions().database.system_scope() as session:
        if not workspaces.has_any_workspace(session):
            return redirect(url_for("login.setup"))
    return _login_page(target=request.args.get("next"), email="")


@blueprint.post("/login")
def enter() -> ResponseReturnValue:
    email = request.form.get("email", "").strip()
    throttle = extensions().login_throttle
    name = f"{request.remote_addr} {email.lower()}"
    if wait_s := throttle.blocked_for(name):
        return _refuse(email, f"Too many tries. Wait {duration(wait_s)} and try again.", 429)
    try:
        with extensions().database.system_scope() as session:
            user = workspaces.authenticate(session, email, request.form.get("password", ""))
            sign_in(user_id=user.id, session_version=user.session_version)
    except Unauthenticated as error:
        throttle.record_failure(name)
        return _refuse(email, error.message, error.status)
    throttle.forget(name)
    return redirect(safe_target(request.form.get("next")) or url_for("campaigns.index"))


@blueprint.post("/logout")
def leave() -> ResponseReturnValue:
    sign_out()
    return redirect(url_for("login.show"))


def safe_target(target: str | None) -> str | None:
    """A path of this site to go on to after sign-in; None for anything that leads elsewhere."""
    if not target or not target.startswith("/") or target.startswith(("//", "/\\")):
        return None
    parts = urlsplit(target)
    return None if parts.scheme or parts.netloc else target


def _setup_page(
    *, form: Mapping[str, str], errors: Mapping[str, str], status: int = HTTPStatus.OK
) -> Response:
    return page(
        "login/setup.html",
        status=status,
        form=form,
        errors=errors,
        error=errors.get("form"),
        min_password_length=passwords.MIN_LENGTH,
    )


def _refuse(email: str, message: str, status: int) -> Response:
    target = request.form.get("next")
    return _login_page(target=target, email=email, status=status, error=message)


def _login_page(
    *, target: str | None, email: str, status: int = HTTPStatus.OK, error: str | None = None
) -> Response:
    return page(
        "login/login.html",
        status=status,
        email=email,
        error=error,
        next=safe_target(target),
        # Whoever uses it on the machine itself can look into its terminal.
        is_local=urlsplit(extensions().config.base_url).hostname in LOCAL_HOSTS,
    )
