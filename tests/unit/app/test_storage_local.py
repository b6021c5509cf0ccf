"""The artifact store in a folder: whole files, safe keys, and a clear word when it is full."""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

import pytest

from app.config import Config
from app.errors import ConfigurationError, InvalidInput, NotFound, StorageError, StorageFull
from app.storage import LocalStorage, storage_from_url
from tests.disks import small_disk

HUGE = 2**60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


@pytest.fixture
def store(root: Path) -> LocalStorage:
    return LocalStorage(root)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"frames")
    return path


def config(storage_url: str) -> Config:
    return Config(
        database_url="",
        database_app_url="",
        database_system_url="",
        redis_url="",
        secret_key="",
        storage_url=storage_url,
    )


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_a_stored_file_can_be_read_listed_and_deleted(store: LocalStorage, clip: Path) -> None:
    store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    store.put_file("ws/def.mp4", clip, media_type="video/mp4")
    store.put_file("other/abc.mp4", clip, media_type="video/mp4")
    with store.open("ws/abc.mp4") as stream:
        assert stream.read() == b"frames"
    with store.open("ws/abc.mp4", offset=2) as stream:
        assert stream.read() == b"ames"
    assert store.exists("ws/abc.mp4")
    assert store.path("ws/abc.mp4").read_bytes() == b"frames"
    assert set(store.iter_keys()) == {"ws/abc.mp4", "ws/def.mp4", "other/abc.mp4"}
    assert set(store.iter_keys("ws/")) == {"ws/abc.mp4", "ws/def.mp4"}
    assert list(store.iter_keys("ws/d")) == ["ws/def.mp4"]
    store.delete("ws/abc.mp4")
    store.delete("ws/abc.mp4")
    assert not store.exists("ws/abc.mp4")
    assert clip.exists(), "the source belongs to the caller"


def test_a_missing_file_is_not_found(store: LocalStorage) -> None:
    for read in (store.open, store.path):
        with pytest.raises(NotFound, match=r"ws/abc\.mp4"):
            read("ws/abc.mp4")


def test_many_files_are_spread_over_folders(store: LocalStorage, root: Path, clip: Path) -> None:
    for number in range(40):
        store.put_file(f"ws/{number}.mp4", clip, media_type="video/mp4")
    assert len(list((root / "ws").iterdir())) > 20
    assert len(list(store.iter_keys())) == 40


@pytest.mark.parametrize(
    "key",
    ["", "/etc/passwd", "../up", "a/../b", "a//b", "a/", ".drafts/x", "a/.x", "a\\b", "a\0", "ä",
     "a" * 256],
)  # fmt: skip
def test_a_key_cannot_leave_the_folder(store: LocalStorage, clip: Path, key: str) -> None:
    for use in (store.open, store.exists, store.delete, store.url):
        with pytest.raises(InvalidInput):
            use(key)
    with pytest.raises(InvalidInput):
        store.put_file(key, clip, media_type="video/mp4")


def test_a_failed_write_leaves_nothing_behind(
    store: LocalStorage, root: Path, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    assert not store.exists("ws/abc.mp4")
    assert files(root) == []


def test_a_full_disk_names_the_folder_and_the_way_out(tmp_path: Path) -> None:
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(os.urandom(100 * 1024))
    with small_disk(tmp_path, size_bytes=256 * 1024) as root:
        store = LocalStorage(root, reserve_bytes=0)
        store.put_file("ws/1.mp4", clip, media_type="video/mp4")
        store.put_file("ws/2.mp4", clip, media_type="video/mp4")
        way_out = f"No space left in {root}.*Free some space.*STORAGE_URL"
        with pytest.raises(StorageFull, match=way_out):
            store.put_file("ws/3.mp4", clip, media_type="video/mp4")
        assert set(store.iter_keys()) == {"ws/1.mp4", "ws/2.mp4"}
        assert len(files(root)) == 2, "no half-written file stays"
        store.delete("ws/1.mp4")
        store.put_file("ws/3.mp4", clip, media_type="video/mp4")


def test_a_disk_that_fills_up_in_mid_write_is_told_as_full(
    store: LocalStorage, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageFull, match="No space left on device"):
        store.put_file("ws/abc.mp4", clip, media_type="video/mp4")


def test_space_is_kept_free_for_the_database(root: Path, clip: Path) -> None:
    store = LocalStorage(root, reserve_bytes=HUGE)
    with pytest.raises(StorageFull, match="kept free"):
        store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    with pytest.raises(StorageFull, match="kept free"):
        store.check_writable()
    LocalStorage(root).check_writable()
    assert files(root) == []


def test_drafts_of_killed_processes_are_removed_but_not_live_ones(root: Path) -> None:
    LocalStorage(root)
    old, live = root / ".drafts" / "old", root / ".drafts" / "live"
    for draft in (old, live):
        draft.write_bytes(b"half")
    two_days_ago = time.time() - 2 * 86_400
    os.utime(old, (two_days_ago, two_days_ago))
    store = LocalStorage(root)
    assert [path.name for path in files(root)] == ["live"]
    assert list(store.iter_keys()) == [], "drafts are no keys"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=str(tmp_path / "file" / "artifacts")):
        LocalStorage(tmp_path / "file" / "artifacts")


def test_stored_files_are_private_to_the_user_that_runs_adloom(
    store: LocalStorage, root: Path, clip: Path
) -> None:
    store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    assert stat.S_IMODE(store.path("ws/abc.mp4").stat().st_mode) == 0o600


def test_the_store_comes_from_its_url(tmp_path: Path) -> None:
    store = storage_from_url(config(f"file://{tmp_path}/my%20clips"))
    assert isinstance(store, LocalStorage)
    assert (tmp_path / "my clips").is_dir()


@pytest.mark.parametrize(
    "url", ["ftp://x/y", "file://host/y", "file:relative", "s3:///x", "/tmp/x"]
)
def test_a_wrong_url_is_refused_with_the_forms_that_work(url: str) -> None:
    with pytest.raises(ConfigurationError, match="file:///absolute/folder") as caught:
        storage_from_url(config(url))
    assert caught.value.field == "STORAGE_URL"
