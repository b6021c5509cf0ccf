"""Checkpoints that were pulled from the hub: the lock file that says which files, and their check.

The lock lies in the checkpoint's folder. It holds the commit that a branch or tag meant when the
model was pulled, so what is loaded later is that one, and what the hub said of each file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.errors import CheckpointError

LOCK_NAME = "adloom.lock.json"
_FORMAT = 1
_HASH_CHUNK_BYTES = 1 << 20
# Told the number of bytes that were read or written since the last call.
ByteCounter = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class LockedFile:
    """A file of a snapshot; `path` is below the checkpoint's folder, with forward slashes.

    `digest` is what the hub keeps: "sha256:..." of large files, "git-sha1:..." (of the git blob)
    of small ones.
    """

    path: str
    size_bytes: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class LockedSource:
    """A repository of the hub at one commit, and the files that came from it."""

    hub_id: str
    revision: str
    files: tuple[LockedFile, ...]


@dataclass(frozen=True, kw_only=True)
class SnapshotLock:
    """What lies in a checkpoint's folder: of the model's repository first, then of others."""

    model_id: str
    sources: tuple[LockedSource, ...]

    @property
    def revision(self) -> str:
        """The commit of the model's own repository."""
        return self.sources[0].revision

    @property
    def files(self) -> tuple[LockedFile, ...]:
        return tuple(file for source in self.sources for file in source.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A file that is not what the hub said when the model was pulled, and in which way."""

    path: str
    reason: str


def write_lock(folder: Path, lock: SnapshotLock) -> None:
    text = json.dumps({"format": _FORMAT} | asdict(lock), indent=1) + "\n"
    (folder / LOCK_NAME).write_text(text, encoding="utf-8")


def read_lock(folder: Path) -> SnapshotLock | None:
    """The lock of a pulled checkpoint; None for one that was put there by other means."""
    path = folder / LOCK_NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != _FORMAT:
            raise CheckpointError(path, "was written by a newer version of Adloom; use that one.")
        sources = [
            LockedSource(
                hub_id=source["hub_id"],
                revision=source["revision"],
                files=tuple(LockedFile(**file) for file in source["files"]),
            )
            for source in data["sources"]
        ]
        return SnapshotLock(model_id=data["model_id"], sources=(sources[0], *sources[1:]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, IndexError):
        raise CheckpointError(
            path, "cannot be read. Remove the model with `adloom models rm` and pull it anew."
        ) from None


def require_locked_files(folder: Path) -> None:
    """Raise CheckpointError where a pulled file is missing or has another length.

    That is quick, so it comes before each load; contents are read by `find_damage`.
    """
    lock = read_lock(folder)
    for file in lock.files if lock is not None else ():
        reason = _length_fault(folder, file)
        if lock is not None and reason is not None:
            raise CheckpointError(
                folder / file.path, f"{reason}. Mend it: adloom models pull {lock.model_id}"
            )


def pulled_digests(folder: Path) -> dict[str, bytes]:
    """SHA-256 by path of the pulled files that were not written to since; empty without a lock."""
    lock = read_lock(folder)
    if lock is None:
        return {}
    locked_ns = (folder / LOCK_NAME).stat().st_mtime_ns
    digests = {}
    for file in lock.files:
        kind, _, digest = file.digest.partition(":")
        path = folder / file.path
        if kind == "sha256" and path.is_file():
            status = path.stat()
            if status.st_size == file.size_bytes and status.st_mtime_ns <= locked_ns:
                digests[file.path] = bytes.fromhex(digest)
    return digests


def find_damage(
    folder: Path, files: Sequence[LockedFile], *, on_bytes: ByteCounter
) -> Iterator[Damage]:
    """The files that are missing, cut off or changed; all others are read to their ends."""
    for file in files:
        reason = _length_fault(folder, file)
        if reason is None and file_digest(folder, file, on_bytes=on_bytes) != file.digest:
            reason = "has other contents than the hub's"
        if reason is not None:
            yield Damage(path=file.path, reason=reason)


def file_digest(folder: Path, file: LockedFile, *, on_bytes: ByteCounter) -> str:
    """The digest of the contents that lie there, of the kind that the hub keeps of this file."""
    kind = file.digest.partition(":")[0]
    if kind == "sha256":
        digest = hashlib.sha256()
    else:
        # Git's name of a file is the SHA-1 of a head and the contents; it guards no secret here.
        digest = hashlib.sha1(f"blob {file.size_bytes}\0".encode(), usedforsecurity=False)
    with (folder / file.path).open("rb") as contents:
        while chunk := contents.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
            on_bytes(len(chunk))
    return f"{kind}:{digest.hexdigest()}"


def _length_fault(folder: Path, file: LockedFile) -> str | None:
    path = folder / file.path
    if not path.is_file():
        return "is missing"
    size_bytes = path.stat().st_size
    if size_bytes == file.size_bytes:
        return None
    return f"has {size_bytes:,} bytes where the hub has {file.size_bytes:,}"
