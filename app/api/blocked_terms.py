"""Blocked terms: what the workspace never renders, read and replaced as one list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.access import Action
from app.api.routes import Call, Empty, Route, RouteKind, Routes
from app.api.schemas.blocked_terms import BlockedTerm, BlockedTerms, BlockedTermsReplace
from app.models import BlockedTerm as BlockedTermRow
from app.services import blocked_terms
from app.services.term_index import Term

routes = Routes()
PATH: Final = "/blocked-terms"
TAG: Final = "Blocked terms"


@routes.add(
    Route(
        method="GET",
        path=PATH,
        kind=RouteKind.COLLECTION,
        action=Action.VIEW,
        tag=TAG,
        summary="List the terms that are never rendered",
        answer=BlockedTerms,
    )
)
def list_blocked_terms(call: Call[Empty, Empty]) -> BlockedTerms:
    return _shown(blocked_terms.list_blocked_terms(call.session, call.actor))


@routes.add(
    Route(
        method="PUT",
        path=PATH,
        kind=RouteKind.CREATE,
        action=Action.EDIT,
        tag=TAG,
        summary="Replace the terms that are never rendered",
        answer=BlockedTerms,
        body=BlockedTermsReplace,
    )
)
def replace_blocked_terms(call: Call[BlockedTermsReplace, Empty]) -> BlockedTerms:
    terms = [Term(text=item.term, reason=item.reason) for item in call.body.terms]
    return _shown(blocked_terms.replace_blocked_terms(call.session, call.actor, terms))


def _shown(rows: Iterable[BlockedTermRow]) -> BlockedTerms:
    return BlockedTerms(data=[BlockedTerm.of(row) for row in rows])
