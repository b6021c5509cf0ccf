"""The terms that a workspace never renders, as the API speaks of them."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from app.api.schemas.base import Input, Output, Text, Time
from app.models import BlockedTerm as BlockedTermRow
from app.services.blocked_terms import MAX_LENGTH, MAX_TERMS


class BlockedTermInput(Input):
    """A word or several; case, accents and kinds of blank make no difference."""

    term: Text = Field(min_length=1, max_length=MAX_LENGTH)
    reason: Text = Field(default="", max_length=MAX_LENGTH)


class BlockedTermsReplace(Input):
    """The whole list: what is left out is no longer blocked."""

    terms: list[BlockedTermInput] = Field(max_length=MAX_TERMS)


class BlockedTerm(Output):
    """A term, why it is blocked (or empty), and since when."""

    term: str
    reason: str
    created_at: Time

    @classmethod
    def of(cls, row: BlockedTermRow) -> Self:
        return cls(term=row.term, reason=row.reason, created_at=row.created_at)


class BlockedTerms(Output):
    """All blocked terms of the workspace, in the order in which they were given."""

    data: list[BlockedTerm]
