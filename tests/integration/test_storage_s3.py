"""The artifact store on the S3 protocol, over real HTTP against moto's server."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import boto3
import pytest
from moto.server import ThreadedMotoServer

from app.errors import NotFound, StorageError, StorageFull
from app.storage.s3 import MULTIPART_BYTES, S3Storage


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def store(endpoint: str) -> S3Storage:
    urlopen(Request(f"{endpoint}/moto-api/reset", method="POST")).close()
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="ads")
    return S3Storage("ads", prefix="prod", endpoint_url=endpoint)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"one\ntwo\n")
    return path


class Recorder(BaseHTTPRequestHandler):
    """Answers every PUT with the next status of `answers`; remembers the headers."""

    answers: list[tuple[int, str]]
    seen: list[dict[str, str]]

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.seen.append({name.lower(): value for name, value in self.headers.items()})
        status, code = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode() if code else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        del args


@pytest.fixture
def recorder() -> Iterator[tuple[type[Recorder], S3Storage]]:
    handler = type("Handler", (Recorder,), {"answers": [], "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler, S3Storage("ads", endpoint_url=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def test_a_stored_object_can_be_read_listed_and_deleted(
    store: S3Storage, endpoint: str, clip: Path
) -> None:
    store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    store.put_file("other/abc.mp4", clip, media_type="video/mp4")
    store.check_writable()
    with store.open("ws/abc.mp4") as stream:
        assert list(stream) == [b"one\n", b"two\n"]
    with store.open("ws/abc.mp4", offset=4) as stream:
        assert list(stream) == [b"two\n"]
    assert store.exists("ws/abc.mp4")
    assert set(store.iter_keys()) == {"ws/abc.mp4", "other/abc.mp4"}
    assert list(store.iter_keys("ws/")) == ["ws/abc.mp4"]
    head = boto3.client("s3", endpoint_url=endpoint).head_object(
        Bucket="ads", Key="prod/ws/abc.mp4"
    )
    assert head["ContentType"] == "video/mp4"
    store.delete("ws/abc.mp4")
    store.delete("ws/abc.mp4")
    assert not store.exists("ws/abc.mp4")
    with pytest.raises(NotFound, match=r"ws/abc\.mp4"):
        store.open("ws/abc.mp4")


def test_listing_goes_on_after_the_first_page(
    store: S3Storage, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    keys = {f"ws/{number}" for number in range(5)}
    for key in keys:
        store.put_file(key, clip, media_type="video/mp4")
    assert set(store.iter_keys("ws/")) == keys


def test_an_object_that_is_there_is_a_success_and_is_not_replaced(
    store: S3Storage, clip: Path
) -> None:
    store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    clip.write_bytes(b"another encoder")
    store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    with store.open("ws/abc.mp4") as stream:
        assert stream.read() == b"one\ntwo\n"


def test_a_large_file_goes_in_parts(store: S3Storage, endpoint: str, clip: Path) -> None:
    with clip.open("wb") as file:
        file.truncate(MULTIPART_BYTES + 5)
    store.put_file("ws/large.mp4", clip, media_type="video/mp4")
    head = boto3.client("s3", endpoint_url=endpoint).head_object(
        Bucket="ads", Key="prod/ws/large.mp4"
    )
    assert head["ContentLength"] == MULTIPART_BYTES + 5
    assert head["ContentType"] == "video/mp4"
    assert "-" in head["ETag"], "the entity tag of a multipart upload counts its parts"


def test_a_link_works_alone_and_lives_for_minutes(store: S3Storage, clip: Path) -> None:
    store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    url = store.url("ws/abc.mp4", expires_s=10**6)
    assert url is not None
    query = parse_qs(urlsplit(url).query)
    assert query["X-Amz-Algorithm"] == ["AWS4-HMAC-SHA256"]
    assert int(query["X-Amz-Expires"][0]) <= 900
    with urlopen(url) as answer:
        assert answer.read() == b"one\ntwo\n"


def test_threads_share_one_store(store: S3Storage, tmp_path: Path) -> None:
    def write(number: int) -> None:
        path = tmp_path / str(number)
        path.write_bytes(str(number).encode())
        store.put_file(f"ws/{number}", path, media_type="text/plain")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(20):
        with store.open(f"ws/{number}") as stream:
            assert stream.read() == str(number).encode()


def test_a_compatible_store_gets_no_checksum_trailer_but_the_whole_body(
    recorder: tuple[type[Recorder], S3Storage], clip: Path
) -> None:
    handler, store = recorder
    handler.answers = [(200, "")]
    store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    (headers,) = handler.seen
    assert headers["if-none-match"] == "*"
    assert not [name for name in headers if "checksum" in name or "trailer" in name]
    assert int(headers["content-length"]) == clip.stat().st_size


def test_a_write_conflict_and_a_short_outage_are_tried_again(
    recorder: tuple[type[Recorder], S3Storage], clip: Path
) -> None:
    handler, store = recorder
    handler.answers = [(409, "ConditionalRequestConflict"), (503, "SlowDown"), (200, "")]
    store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    assert len(handler.seen) == 3


@pytest.mark.parametrize("code", ["XMinioStorageFull", "QuotaExceeded"])
def test_a_full_store_is_told_as_full(
    recorder: tuple[type[Recorder], S3Storage], clip: Path, code: str
) -> None:
    handler, store = recorder
    handler.answers = [(403, code)]
    with pytest.raises(StorageFull, match="No space left in s3://ads at http"):
        store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    with pytest.raises(StorageFull):
        store.check_writable()


def test_a_refusal_names_the_bucket_and_what_to_check(
    recorder: tuple[type[Recorder], S3Storage], endpoint: str, clip: Path
) -> None:
    handler, store = recorder
    handler.answers = [(403, "AccessDenied")]
    with pytest.raises(StorageError, match=r"s3://ads at http.*AccessDenied.*access key"):
        store.put_file("ws/abc.mp4", clip, media_type="video/mp4")
    with pytest.raises(StorageError, match="NoSuchBucket"):
        S3Storage("nowhere", endpoint_url=endpoint).put_file("k", clip, media_type="video/mp4")


def test_an_unreachable_store_names_the_settings(clip: Path) -> None:
    store = S3Storage("ads", endpoint_url="http://127.0.0.1:1")
    with pytest.raises(StorageError, match="S3_ENDPOINT_URL"):
        store.put_file("ws/abc.mp4", clip, media_type="video/mp4")


def test_missing_credentials_are_named(
    endpoint: str, clip: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(StorageError, match="AWS_ACCESS_KEY_ID"):
        S3Storage("ads", endpoint_url=endpoint).put_file("k", clip, media_type="video/mp4")


def test_what_is_read_back_is_what_was_stored(store: S3Storage, tmp_path: Path) -> None:
    path = tmp_path / "clip"
    path.write_bytes(bytes(range(256)) * 9000)
    store.put_file("ws/clip", path, media_type="video/mp4")
    with store.open("ws/clip") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
