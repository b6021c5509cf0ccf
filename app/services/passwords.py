"""Passwords: what is accepted, how they are kept, and a check that takes equal time for all."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from app.errors import InvalidInput

MIN_LENGTH: Final = 10
# Hashing a longer text would let a stranger keep the processor busy.
MAX_LENGTH: Final = 1_000

# Argon2id with the least memory that OWASP's Password Storage Cheat Sheet lists first (19 MiB):
# several people may sign in at once in a small web process.
_hasher = PasswordHasher(memory_cost=19 * 1024, time_cost=2, parallelism=1)


def hash_password(password: str) -> str:
    """The text to keep; InvalidInput when the password is too short or too long."""
    if len(password) < MIN_LENGTH:
        raise InvalidInput(
            f"The password has {len(password)} characters; use at least {MIN_LENGTH}. A few"
            " words in a row are easy to remember and hard to guess.",
            field="password",
        )
    if len(password) > MAX_LENGTH:
        raise InvalidInput(
            f"The password has {len(password):,} characters; {MAX_LENGTH:,} are allowed.",
            field="password",
        )
    return _hasher.hash(password)


def verify_password(password_hash: str | None, password: str) -> bool:
    """Whether the password is right; None (nobody of that name) takes as long as a wrong one."""
    decoy = _decoy_hash()
    try:
        _hasher.verify(password_hash or decoy, password[: MAX_LENGTH + 1])
    except (VerificationError, InvalidHashError):
        return False
    return password_hash is not None


def needs_rehash(password_hash: str) -> bool:
    """Whether it was made with other parameters than today's."""
    return _hasher.check_needs_rehash(password_hash)


@lru_cache(maxsize=1)
def _decoy_hash() -> str:
    return _hasher.hash("a password that nobody has")
