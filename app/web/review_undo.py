"""What a person reviewed last in one go, kept in the session so that it can be taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from flask import session as cookie
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.access import Actor
from app.models import ReviewState
from app.services import reviews

KEY = "last_review"
# The session is a cookie, which browsers limit to 4 kB.
MAX_BYTES = 1_500

Reviews = Mapping[UUID, tuple[ReviewState, str]]


def remember(session: Session, batch_id: UUID, *, words: str, before: Reviews) -> None:
    """Keep what the reviews of this transaction replaced, unless that is too much to keep."""
    kept = {str(id_): [state, reason] for id_, (state, reason) in before.items()}
    at = session.scalar(select(func.now()))
    assert at is not None
    record = {
        "batch": str(batch_id),
        "words": words,
        "at": at.isoformat(),
        "before": kept,
    }
    cookie[KEY] = record
    if len(json.dumps(record)) > MAX_BYTES:
        cookie[KEY] = {"batch": str(batch_id), "words": words}


def last_words(batch_id: UUID) -> tuple[str, bool]:
    """What was done last in this batch, and whether it can be taken back; "" for nothing."""
    record = cookie.get(KEY) or {}
    if record.get("batch") != str(batch_id):
        return "", False
    return record["words"], "at" in record


def undo(session: Session, actor: Actor, batch_id: UUID) -> int:
    """Take back what was reviewed last in this batch; returns the number of variants."""
    record = cookie.pop(KEY, None) or {}
    if record.get("batch") != str(batch_id) or "at" not in record:
        return 0
    before = {
        UUID(id_): (ReviewState(state), reason) for id_, (state, reason) in record["before"].items()
    }
    at = datetime.fromisoformat(record["at"])
    return reviews.take_back(session, actor, batch_id, at=at, before=before)
