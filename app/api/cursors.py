"""Cursors of lists: where the next page starts, signed, and of use in the same list alone."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import request
from itsdangerous import BadSignature, URLSafeSerializer

from app.access import Actor
from app.errors import InvalidInput
from app.extensions import extensions


class InvalidCursor(InvalidInput):
    """The cursor was changed, or comes from another list."""

    code = "invalid_cursor"


def write_cursor(actor: Actor, last: Any) -> str:
    """A cursor behind the row whose key is `last`."""
    text = _serializer(actor).dumps(last if isinstance(last, int) else str(last))
    return text if isinstance(text, str) else text.decode()


def read_cursor(actor: Actor, cursor: str | None) -> Any:
    """What `write_cursor` was given (ids as text); None without a cursor."""
    if cursor is None:
        return None
    try:
        return _serializer(actor).loads(cursor)
    except BadSignature:
        raise InvalidCursor(
            "This cursor does not belong to this list. Start again without one.", field="cursor"
        ) from None


def read_id_cursor(actor: Actor, cursor: str | None) -> UUID | None:
    """The id that `write_cursor` was given."""
    return UUID(text) if (text := read_cursor(actor, cursor)) is not None else None


def _serializer(actor: Actor) -> URLSafeSerializer:
    # A page is the same list as long as its filters are the same.
    filters = sorted(
        item for item in request.args.items(multi=True) if item[0] not in ("cursor", "limit")
    )
    salt = repr(("cursor", str(actor.workspace_id), request.path, filters))
    return URLSafeSerializer(extensions().config.secret_key, salt=salt)
