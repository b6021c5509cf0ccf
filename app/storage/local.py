"""The artifact store in a folder of this machine."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from app.errors import NotFound, StorageError, StorageFull
from app.storage.base import URL_EXPIRES_S, check_key

# Kept free for the database, which often shares the disk and stops when it is full.
RESERVE_BYTES = 64 * 2**20
_DRAFTS = ".drafts"
_DRAFT_MAX_AGE_S = 86_400.0


class LocalStorage:
    """Files under `root`, spread over folders of two letters so that none grows too large."""

    def __init__(self, root: Path, *, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._root = root
        self._drafts = root / _DRAFTS
        self._reserve_bytes = reserve_bytes
        with self._errors("create"):
            self._drafts.mkdir(parents=True, exist_ok=True)
            self._remove_old_drafts()

    def put_file(self, key: str, path: Path, *, media_type: str) -> None:
        del media_type  # the suffix of the key tells it
        target = self._path(key)
        self._check_space(path.stat().st_size)
        with self._errors("write to"), self._draft() as draft:
            with path.open("rb") as source, draft.open("wb") as copy:
                shutil.copyfileobj(source, copy, 2**20)
                copy.flush()
                os.fsync(copy.fileno())
            target.parent.mkdir(parents=True, exist_ok=True)
            draft.replace(target)
            _sync_folder(target.parent)

    def open(self, key: str, *, offset: int = 0) -> BinaryIO:
        path = self._path(key)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            raise NotFound(f"There is no stored file {key}.") from None
        file.seek(offset)
        return file

    def url(self, key: str, *, expires_s: int = URL_EXPIRES_S) -> str | None:
        check_key(key)
        del expires_s
        return None

    def path(self, key: str) -> Path:
        """Where the object lies, for a server that can send a file by itself; NotFound."""
        path = self._path(key)
        if not path.is_file():
            raise NotFound(f"There is no stored file {key}.")
        return path

    def exists(self, key: str) -> bool:
        return self._path(key).is_file()

    def delete(self, key: str) -> None:
        with self._errors("delete from"):
            self._path(key).unlink(missing_ok=True)

    def iter_keys(self, prefix: str = "") -> Iterator[str]:
        start = self._root / prefix.rpartition("/")[0]
        for folder, folders, names in os.walk(start):
            folders[:] = [name for name in folders if name != _DRAFTS]
            # The last folder is the shard, which is no part of the key.
            parts = Path(folder).relative_to(self._root).parts[:-1]
            for name in names:
                key = "/".join((*parts, name))
                if key.startswith(prefix):
                    yield key

    def check_writable(self) -> None:
        self._check_space(0)
        with self._errors("write to"), self._draft() as draft:
            draft.write_bytes(b"\0" * 4096)

    def _path(self, key: str) -> Path:
        parent, _, name = check_key(key).rpartition("/")
        shard = hashlib.sha256(name.encode()).hexdigest()[:2]
        return self._root / parent / shard / name

    def _check_space(self, size_bytes: int) -> None:
        with self._errors("read"):
            free = shutil.disk_usage(self._root).free
        if free < size_bytes + self._reserve_bytes:
            raise self._full(f"{free // 2**20} MiB free, {self._reserve_bytes // 2**20} kept free")

    def _full(self, detail: str) -> StorageFull:
        return StorageFull(
            f"No space left in {self._root} ({detail}). Free some space on that disk, or set "
            "STORAGE_URL to a larger place; waiting work then goes on by itself."
        )

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """A new file on the same file system, removed unless it was moved to its place."""
        descriptor, name = tempfile.mkstemp(dir=self._drafts)
        os.close(descriptor)
        draft = Path(name)
        try:
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._full(error.strerror or "disk full") from None
            raise StorageError(
                f"Cannot {verb} the artifact folder {self._root} ({error.strerror or error}). "
                "Check that it exists and that this user may write there."
            ) from error

    def _remove_old_drafts(self) -> None:
        """Drafts of processes that were killed in mid write; a live one is never that old."""
        oldest = time.time() - _DRAFT_MAX_AGE_S
        for draft in self._drafts.iterdir():
            if draft.stat().st_mtime < oldest:
                draft.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
