"""The blueprint of /v1: every declared route, and the public ones beside them."""

from __future__ import annotations

from typing import Final

from flask import Blueprint
from flask_wtf import CSRFProtect

from app.api import (
    account,
    batches,
    blocked_terms,
    campaigns,
    files,
    generations,
    places,
    schedules,
    uploads,
    variants,
    webhooks,
)
from app.api.docs import Docs
from app.api.frame import add_headers, make_view
from app.api.routes import Declared
from app.problems import PREFIX

NAME: Final = "v1"
RESOURCES: Final = (
    generations,
    campaigns,
    places,
    uploads,
    batches,
    schedules,
    variants,
    blocked_terms,
    webhooks,
    account,
)
DECLARED: Final[tuple[Declared, ...]] = tuple(
    item for resource in RESOURCES for item in resource.routes.declared
)
# Endpoints that need no key: the description, and files behind signed links.
PUBLIC: Final = frozenset({"openapi", "docs", files.ENDPOINT})


def make_blueprint(csrf: CSRFProtect) -> Blueprint:
    """The API. Keys are sent by hand, not by browsers on their own, so it needs no CSRF tokens."""
    blueprint = Blueprint(NAME, __name__, url_prefix=PREFIX)
    for item in DECLARED:
        blueprint.add_url_rule(
            item.route.path,
            endpoint=item.operation_id,
            view_func=make_view(item),
            methods=[item.route.method],
        )
    docs = Docs(DECLARED)
    blueprint.add_url_rule("/openapi.json", endpoint="openapi", view_func=docs.openapi)
    blueprint.add_url_rule("/docs", endpoint="docs", view_func=docs.page)
    blueprint.add_url_rule(files.PATH, endpoint=files.ENDPOINT, view_func=files.get_file)
    blueprint.after_request(add_headers)
    csrf.exempt(blueprint)
    return blueprint
