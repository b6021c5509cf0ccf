"""What every artifact store can do, and which keys it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from app.errors import InvalidInput

MAX_KEY_LENGTH = 255
# No segment starts with a dot, so a key can neither climb out of a folder nor hide in it.
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)*")

# How long a link to an object lives by default.
URL_EXPIRES_S = 900


class Storage(Protocol):
    """Write-once objects under keys made of ids and content hashes.

    A key stands for its content: writing a key again leaves the same object behind. Methods
    raise NotFound for a missing object, StorageFull when no space is left, and StorageError when
    the store cannot be reached or refuses.
    """

    def put_file(self, key: str, path: Path, *, media_type: str) -> None:
        """Store a file; readers see the whole object or none, and it survives a power cut."""

    def open(self, key: str, *, offset: int = 0) -> BinaryIO:
        """The object's bytes from `offset` on, as a stream that the caller closes.

        The offset lies within the object.
        """

    def url(self, key: str, *, expires_s: int = URL_EXPIRES_S) -> str | None:
        """A link that works without our help for a while, or None: then serve `open(key)`."""

    def exists(self, key: str) -> bool: ...

    def delete(self, key: str) -> None:
        """Remove the object; a missing one is no error."""

    def iter_keys(self, prefix: str = "") -> Iterator[str]:
        """Every key that starts with `prefix`, in no order."""

    def check_writable(self) -> None:
        """Raise StorageFull or StorageError when a put would fail now."""


def check_key(key: str) -> str:
    """Return the key if it is safe; InvalidInput otherwise."""
    if len(key) > MAX_KEY_LENGTH or _KEY.fullmatch(key) is None:
        raise InvalidInput(
            f"{key[:80]!r} cannot be a storage key: letters, digits, '.', '_', '-' in segments "
            f"separated by '/', none starting with a dot, {MAX_KEY_LENGTH} characters at most.",
            field="key",
        )
    return key
