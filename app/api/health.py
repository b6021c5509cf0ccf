"""Health: is the process alive, and can it do its work."""

from __future__ import annotations

import logging

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from app.extensions import extensions

LOG = logging.getLogger("app.health")

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
def live() -> ResponseReturnValue:
    """200 as long as the process answers; asks no other service."""
    return jsonify(status="ok")


@blueprint.get("/readyz")
def ready() -> ResponseReturnValue:
    """200 when the database can be used in both roles, 503 with the reason otherwise."""
    database = extensions().database
    checks: dict[str, str] = {}
    for name, engine in (("app", database.app_engine), ("system", database.system_engine)):
        try:
            with engine.connect() as connection:
                connection.execute(text("SELECT id FROM workspaces LIMIT 1"))
            checks[f"database_{name}"] = "ok"
        except SQLAlchemyError as error:
            LOG.warning("not ready: %s", error)
            checks[f"database_{name}"] = "unavailable"
    is_ready = set(checks.values()) == {"ok"}
    return jsonify(status="ok" if is_ready else "unavailable", checks=checks), (
        200 if is_ready else 503
    )
