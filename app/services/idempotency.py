"""Answers kept by idempotency key: a request that is sent again has no second effect."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from app.access import Actor
from app.db import config_of
from app.errors import ConfigurationError, Conflict, InvalidInput
from app.models import IdempotencyKey
from app.services.webhook_signing import seal, unseal

MAX_KEY_LENGTH: Final = 255
EXPIRES_AFTER: Final = timedelta(hours=24)
# Old answers of the workspace that one new answer clears away.
SWEEP: Final = 50


class KeyInUse(Conflict):
    """A request with this key is still being worked on."""

    code = "idempotency_key_in_use"


class KeyReused(InvalidInput):
    """The key was used for another request."""

    status = 422
    code = "idempotency_key_reused"


class AnswerUnreadable(Conflict):
    """The request was carried out, and its kept answer cannot be read any more."""

    code = "idempotency_answer_unreadable"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer as it was given: its status and its JSON."""

    status: int
    body: str


def fingerprint(*parts: str) -> str:
    """SHA-256 over what makes a request the same one: method, path and body."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def find_answer(session: Session, actor: Actor, key: str, *, asked: str) -> Answer | None:
    """The answer given under this key before, or None: then the caller owns it until the end.

    Held by a lock of the transaction, so a crash frees the key together with the effect. KeyInUse
    while another transaction holds it, KeyReused when `asked`, the fingerprint, is another one,
    AnswerUnreadable when the answer was sealed under another ADLOOM_SECRET_KEY.
    """
    _check_key(key)
    lock = func.hashtextextended(f"{actor.workspace_id}:{key}", 0)
    if not session.scalar(select(func.pg_try_advisory_xact_lock(lock))):
        raise KeyInUse("A request with this Idempotency-Key is still being worked on. Try again.")
    kept = session.scalars(
        select(IdempotencyKey).where(
            IdempotencyKey.workspace_id == actor.workspace_id,
            IdempotencyKey.key == key,
            IdempotencyKey.expires_at > func.now(),
        )
    ).one_or_none()
    if kept is None:
        return None
    if kept.fingerprint != asked:
        raise KeyReused(
            "This Idempotency-Key was used for another request. Use a new key for a new request.",
            field="Idempotency-Key",
        )
    try:
        body = unseal(kept.body_sealed, secret_key=config_of(session).secret_key)
    except ConfigurationError:
        raise AnswerUnreadable(
            "This request was carried out before and was not carried out again. Its answer cannot "
            "be given: ADLOOM_SECRET_KEY has changed since. Look for what was made with a GET; "
            "use a new Idempotency-Key only to have it made once more.",
            field="Idempotency-Key",
        ) from None
    return Answer(status=kept.status, body=body)


def keep_answer(session: Session, actor: Actor, key: str, *, asked: str, answer: Answer) -> None:
    """Keep an answer in the transaction of its effect; it is given again for EXPIRES_AFTER."""
    of_workspace = IdempotencyKey.workspace_id == actor.workspace_id
    outdated = (
        select(IdempotencyKey.id)
        .where(of_workspace, IdempotencyKey.expires_at <= func.now())
        .order_by((IdempotencyKey.key == key).desc(), IdempotencyKey.expires_at)
        .limit(SWEEP)
    )
    session.execute(delete(IdempotencyKey).where(IdempotencyKey.id.in_(outdated)))
    session.add(
        IdempotencyKey(
            workspace_id=actor.workspace_id,
            key=key,
            fingerprint=asked,
            status=answer.status,
            body_sealed=seal(answer.body, secret_key=config_of(session).secret_key),
            expires_at=func.now() + EXPIRES_AFTER,
        )
    )
    session.flush()


def _check_key(key: str) -> None:
    if not 0 < len(key) <= MAX_KEY_LENGTH or not key.isascii() or not key.isprintable():
        raise InvalidInput(
            f"Idempotency-Key takes 1 to {MAX_KEY_LENGTH} printable ASCII characters.",
            field="Idempotency-Key",
        )
