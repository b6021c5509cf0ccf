"""Signing secrets and signatures of webhooks, after Standard Webhooks 1.0.0.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.errors import ConfigurationError

PREFIX: Final = "whsec_"
# The specification asks for 24 to 64 bytes.
KEY_BYTES: Final = 32


def new_secret() -> str:
    """A random secret as the receiver's library takes it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def signed_headers(
    signing_secrets: Sequence[str], *, message_id: str, sent_at: datetime, body: bytes
) -> dict[str, str]:
    """The three headers of a message; while a secret is rotated, one signature of each secret."""
    timestamp = str(int(sent_at.timestamp()))
    content = f"{message_id}.{timestamp}.".encode() + body
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(_sign(secret, content) for secret in signing_secrets),
    }


def seal(secret: str, *, secret_key: str) -> bytes:
    """Encrypt a signing secret for the database."""
    return _cipher(secret_key).encrypt(secret.encode())


def unseal(sealed: bytes, *, secret_key: str) -> str:
    """The signing secret; ConfigurationError when it was sealed under another key."""
    try:
        return _cipher(secret_key).decrypt(sealed).decode()
    except InvalidToken:
        raise ConfigurationError(
            "The signing secret cannot be read: ADLOOM_SECRET_KEY has changed since it was made. "
            "Rotate the secret of this webhook endpoint.",
            field="ADLOOM_SECRET_KEY",
        ) from None


def _sign(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()


@lru_cache(maxsize=4)
def _cipher(secret_key: str) -> Fernet:
    # A key of its own, so that nothing else signed or sealed with the same setting fits here.
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"adloom webhook secrets")
    return Fernet(base64.urlsafe_b64encode(derived.derive(secret_key.encode())))
