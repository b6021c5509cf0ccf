"""`pull` and `remove`: a published checkpoint comes to its folder whole, or not at all.

Files are fetched into `.pulls/` beside the checkpoints, checked against the hub's digests, and
moved to the checkpoint's folder together. A pull that breaks off leaves what has come there, and
the next one goes on from it. A model that is there already is checked, and what is damaged fetched.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.config import HubConfig
from engine.errors import CheckpointError, HubError
from engine.published import INDEX_NAME, borrowed_files, pipeline_files, put_below
from engine.registry import ModelSpec, checkpoint_folder
from engine.snapshots import (
    Damage,
    LockedFile,
    LockedSource,
    SnapshotLock,
    find_damage,
    read_lock,
    write_lock,
)

if TYPE_CHECKING:
    from engine.hub import Hub, Listing

_PULLS: Final = ".pulls"
_GIGABYTE: Final = 1e9


@dataclass(frozen=True, kw_only=True)
class PullProgress:
    """How far a pull is: `is_check` tells reading again from fetching; bytes count within it."""

    is_check: bool
    path: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """What a pull came to; `fetched_bytes` is 0 where all was there already."""

    folder: Path
    lock: SnapshotLock
    fetched_bytes: int


@dataclass(frozen=True, kw_only=True)
class Removed:
    """What was removed; a link to a folder elsewhere goes alone, and frees nothing."""

    folder: Path
    freed_bytes: int


ProgressListener = Callable[[PullProgress], None]


def pull(
    spec: ModelSpec,
    *,
    model_dir: Path,
    hub: HubConfig,
    revision: str | None = None,
    on_progress: ProgressListener = lambda _: None,
) -> Pulled:
    """Fetch a model, or check and mend it where it is there already.

    `revision` is a branch, tag or commit; by default the one that is locked, else the hub's
    default branch. HubError or CheckpointError say what stands in the way.
    """
    if spec.hub_id is None:
        raise HubError(f"{spec.model_id} is part of Adloom; there is nothing to pull.")
    # Local import: the hub's library takes half a second to load, which `list` need not wait for.
    from engine.hub import Hub

    folder = checkpoint_folder(spec.model_id, model_dir=model_dir)
    lock = read_lock(folder)
    if lock is None and folder.exists():
        raise CheckpointError(
            folder,
            "was put there by other means than `adloom models pull`, and is used as it is. To pull"
            f" the published one, remove it first: adloom models rm {spec.model_id}",
        )
    with _alone(spec, folder):
        return _Pull(spec, folder, Hub(hub), on_progress).run(lock, revision)


def remove(spec: ModelSpec, *, model_dir: Path) -> Removed:
    """Delete a model's files, those of an unfinished pull included."""
    if spec.hub_id is None:
        raise HubError(f"{spec.model_id} is part of Adloom and stays.")
    folder = checkpoint_folder(spec.model_id, model_dir=model_dir)
    if not folder.exists() and not partial_bytes(spec, model_dir=model_dir):
        raise CheckpointError(folder, f"{spec.model_id} is not on this machine.")
    with _alone(spec, folder):
        pulls = _pulls_folder(folder)
        freed_bytes = folder_bytes(pulls)
        shutil.rmtree(pulls, ignore_errors=True)
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            freed_bytes += folder_bytes(folder)
            shutil.rmtree(folder)
    return Removed(folder=folder, freed_bytes=freed_bytes)


def partial_bytes(spec: ModelSpec, *, model_dir: Path) -> int:
    """What an unfinished pull of a model has brought so far."""
    return folder_bytes(_pulls_folder(checkpoint_folder(spec.model_id, model_dir=model_dir)))


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """A file of a repository, and its name in the model's folder."""

    listing: Listing
    remote: LockedFile
    local: LockedFile


class _Pull:
    """One pull of one model."""

    def __init__(
        self, spec: ModelSpec, folder: Path, hub: Hub, on_progress: ProgressListener
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._hub = hub
        self._on_progress = on_progress

    def run(self, before: SnapshotLock | None, revision: str | None) -> Pulled:
        listings = self._list(before, revision)
        staged = _pulls_folder(self._folder) / listings[0].revision
        staged.mkdir(parents=True, exist_ok=True)
        wanted = self._choose(listings, staged)
        lock = self._lock(wanted)
        good = self._unchanged(before, lock)
        missing = [each for each in wanted if each.local.path not in good]
        fetched_bytes = 0
        if missing:
            fetched_bytes = self._fetch(missing, staged)
            self._refuse_damage([each.local for each in missing], staged)
            for path in good:
                _link(self._folder / path, staged / path)
            write_lock(staged, lock)
            self._install(staged)
        elif lock != before:
            write_lock(self._folder, lock)
        shutil.rmtree(_pulls_folder(self._folder))
        return Pulled(folder=self._folder, lock=lock, fetched_bytes=fetched_bytes)

    def _list(self, before: SnapshotLock | None, revision: str | None) -> list[Listing]:
        """The repositories' files: at the locked commits, but for the one that is asked for."""
        assert self._spec.hub_id is not None
        asked = {source.hub_id: source.revision for source in before.sources} if before else {}
        if revision is not None:
            asked[self._spec.hub_id] = revision
        ids = dict.fromkeys([self._spec.hub_id, *self._spec.borrowed_parts.values()])
        return [self._hub.list_files(each, revision=asked.get(each)) for each in ids]

    def _choose(self, listings: Sequence[Listing], staged: Path) -> list[_Wanted]:
        """The files that the model's pipeline needs."""
        own = listings[0]
        chosen = [
            _Wanted(listing=own, remote=file, local=file)
            for file in pipeline_files(own.hub_id, own.files, self._read_index(own, staged))
        ]
        by_id = {listing.hub_id: listing for listing in listings}
        for part, hub_id in self._spec.borrowed_parts.items():
            listing = by_id[hub_id]
            chosen += [
                _Wanted(listing=listing, remote=file, local=put_below(file, part))
                for file in borrowed_files(hub_id, listing.files, part)
            ]
        return chosen

    def _read_index(self, listing: Listing, staged: Path) -> dict[str, Any]:
        """What the repository says of its pipeline; HubError where that is not the model's."""
        file = next((each for each in listing.files if each.path == INDEX_NAME), None)
        where = f"{listing.hub_id} at {listing.revision[:12]}"
        if file is None:
            raise HubError(f"{where} is no diffusers checkpoint: it has no {INDEX_NAME}.")
        self._hub.fetch(listing, file, staged / INDEX_NAME, on_bytes=lambda _: None)
        index = json.loads((staged / INDEX_NAME).read_text(encoding="utf-8"))
        found = index.get("_class_name")
        if found not in self._spec.pipeline_classes:
            wanted = " or ".join(sorted(self._spec.pipeline_classes))
            raise HubError(f"{where} is a checkpoint of {found}, but the model needs {wanted}.")
        return dict(index)

    def _lock(self, wanted: Sequence[_Wanted]) -> SnapshotLock:
        listings = {each.listing.hub_id: each.listing for each in wanted}
        sources = [
            LockedSource(
                hub_id=hub_id,
                revision=listing.revision,
                files=tuple(each.local for each in wanted if each.listing is listing),
            )
            for hub_id, listing in listings.items()
        ]
        return SnapshotLock(model_id=self._spec.model_id, sources=tuple(sources))

    def _unchanged(self, before: SnapshotLock | None, lock: SnapshotLock) -> set[str]:
        """Paths of files that lie in the model's folder already, just as the lock says."""
        known = set(before.files) if before is not None else set()
        files = [file for file in lock.files if file in known]
        damaged = {each.path for each in self._read_all(files, self._folder)}
        return {file.path for file in files} - damaged

    def _fetch(self, missing: Sequence[_Wanted], staged: Path) -> int:
        """Bring what is missing; the bytes that came."""
        there = {each.local.path: _size(staged / each.local.path) for each in missing}
        total_bytes = sum(each.local.size_bytes for each in missing)
        _require_space(staged, total_bytes - sum(there.values()), self._spec)
        before_bytes = done_bytes = sum(there.values())
        for each in missing:

            def count(num_bytes: int, path: str = each.local.path) -> None:
                nonlocal done_bytes
                done_bytes += num_bytes
                self._tell(path, done_bytes, total_bytes)

            self._hub.fetch(each.listing, each.remote, staged / each.local.path, on_bytes=count)
        return done_bytes - before_bytes

    def _refuse_damage(self, files: Sequence[LockedFile], staged: Path) -> None:
        """Throw away what did not come as the hub has it, so that the next pull fetches it."""
        damaged = [each.path for each in self._read_all(files, staged)]
        for path in damaged:
            (staged / path).unlink(missing_ok=True)
        if damaged:
            raise HubError(
                f"{', '.join(damaged)} did not come as the hub has it and was thrown away. Try the"
                " same again; what is whole is kept."
            )

    def _read_all(self, files: Sequence[LockedFile], folder: Path) -> Iterator[Damage]:
        done_bytes, total_bytes = 0, sum(file.size_bytes for file in files)

        def count(num_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += num_bytes
            self._tell("", done_bytes, total_bytes, is_check=True)

        return find_damage(folder, files, on_bytes=count)

    def _install(self, staged: Path) -> None:
        """Put the staged folder in the model's place; what was there stays until then."""
        place = self._folder.resolve()
        if place.exists():
            place.rename(staged.with_name("replaced"))
        staged.rename(place)

    def _tell(
        self, path: str, done_bytes: int, total_bytes: int, *, is_check: bool = False
    ) -> None:
        self._on_progress(
            PullProgress(
                is_check=is_check, path=path, done_bytes=done_bytes, total_bytes=total_bytes
            )
        )


def _pulls_folder(folder: Path) -> Path:
    """Where a model's unfinished pulls lie: on the disk of its checkpoint."""
    return folder.resolve().parent / _PULLS / folder.name


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.hardlink_to(source)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _require_space(folder: Path, needed_bytes: int, spec: ModelSpec) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        raise HubError(
            f"{spec.model_id} takes {needed_bytes / _GIGABYTE:.1f} GB more, but only"
            f" {free_bytes / _GIGABYTE:.1f} GB are free in {folder.parents[2]}. Free some space,"
            " or set ADLOOM_MODEL_DIR to a folder on a larger disk."
        )


@contextmanager
def _alone(spec: ModelSpec, folder: Path) -> Iterator[None]:
    """Keep other pulls and removals of this model away; disk errors are said with a way out."""
    # Local import: whoever only asks for names and sizes needs no lock.
    from filelock import FileLock, Timeout

    pulls = _pulls_folder(folder)
    try:
        pulls.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(pulls.with_name(f"{pulls.name}.lock"), timeout=0):
            yield
    except Timeout:
        raise HubError(f"{spec.model_id} is being pulled or removed by another process.") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HubError(
                f"No space is left in {pulls.parents[1]}. What has come is kept: free some space,"
                " and the same command goes on from there."
            ) from None
        raise HubError(
            f"{pulls.parents[1]} cannot be used ({error}). Set ADLOOM_MODEL_DIR to a folder that"
            " can be written."
        ) from error
