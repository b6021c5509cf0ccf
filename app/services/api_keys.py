"""API keys: issued once, kept as a hash, found by their visible prefix."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string
import zlib
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, Role, require
from app.errors import InvalidInput, NotFound
from app.models import ApiKey

MARK: Final = "adl_"
PREFIX_LENGTH: Final = len(MARK) + 8
# 32 characters of 62 hold 190 bits.
RANDOM_LENGTH: Final = 32
CHECKSUM_LENGTH: Final = 6
MAX_NAME_LENGTH: Final = 120
# Writing the time of each use would make every request a write.
LAST_USED_EVERY: Final = timedelta(minutes=1)

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase


def issue_api_key(
    session: Session,
    actor: Actor,
    *,
    name: str,
    role: Role = Role.EDITOR,
    scopes: Collection[Action] = (),
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """Make a key and return it with its secret, which cannot be read again later.

    Without `scopes` the key may do all that its role allows.
    """
    require(actor, Action.MANAGE)
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise InvalidInput(f"Name the key, in up to {MAX_NAME_LENGTH} characters.", field="name")
    body = MARK + _random(PREFIX_LENGTH - len(MARK)) + _random(RANDOM_LENGTH)
    secret = body + _checksum(body)
    key = ApiKey(
        workspace_id=actor.workspace_id,
        name=name,
        prefix=secret[:PREFIX_LENGTH],
        key_sha256=_sha256(secret),
        role=role,
        scopes=sorted(scopes),
        created_by=actor.user_id,
        expires_at=expires_at,
    )
    session.add(key)
    session.flush()
    return key, secret


def list_api_keys(session: Session, actor: Actor) -> list[ApiKey]:
    """All keys of the workspace, the newest first."""
    require(actor, Action.MANAGE)
    return list(
        session.scalars(
            select(ApiKey)
            .where(ApiKey.workspace_id == actor.workspace_id)
            .order_by(ApiKey.created_at.desc(), ApiKey.id.desc())
        )
    )


def revoke_api_key(session: Session, actor: Actor, key_id: UUID) -> None:
    """End a key for good; one that was revoked before stays as it is."""
    require(actor, Action.MANAGE)
    key = session.scalars(
        select(ApiKey).where(ApiKey.id == key_id, ApiKey.workspace_id == actor.workspace_id)
    ).one_or_none()
    if key is None:
        raise NotFound("There is no such API key in this workspace.")
    if key.revoked_at is None:
        key.revoked_at = session.scalar(select(func.now()))
        session.flush()


def find_api_key(session: Session, secret: str) -> ApiKey | None:
    """The key of this secret (system session), or None when it is wrong, expired or revoked."""
    if not has_valid_checksum(secret):
        return None
    now = session.scalars(select(func.now())).one()
    key = session.scalars(
        select(ApiKey).where(ApiKey.prefix == secret[:PREFIX_LENGTH])
    ).one_or_none()
    if key is None or not hmac.compare_digest(key.key_sha256, _sha256(secret)):
        return None
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
        return None
    if key.last_used_at is None or now - key.last_used_at >= LAST_USED_EVERY:
        key.last_used_at = now
    return key


def actor_of_key(key: ApiKey) -> Actor:
    """Who acts when this key is used."""
    return Actor(
        workspace_id=key.workspace_id,
        role=key.role,
        api_key_id=key.id,
        scopes=frozenset(map(Action, key.scopes)) if key.scopes else None,
    )


def has_valid_checksum(secret: str) -> bool:
    """Whether a text can be one of our keys at all; tells a typing error without the database."""
    expected_length = PREFIX_LENGTH + RANDOM_LENGTH + CHECKSUM_LENGTH
    if len(secret) != expected_length or not secret.startswith(MARK) or not secret.isascii():
        return False
    return _checksum(secret[:-CHECKSUM_LENGTH]) == secret[-CHECKSUM_LENGTH:]


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(CHECKSUM_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
