"""A hub of models for tests: a real HTTP server with the hub's routes, and troubles to order.

It answers as https://huggingface.co does: a repository's information names the commit, its tree the
sizes and digests, and large files are redirected to another host.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

CHUNK_BYTES = 64 * 1024
Files = dict[str, bytes]


@dataclass
class Repository:
    """Files by path by commit; branches and tags name commits. A gated one asks for the token."""

    commits: dict[str, Files]
    refs: dict[str, str]
    token: str | None = None

    def find(self, revision: str) -> str | None:
        commit = self.refs.get(revision, revision)
        return commit if commit in self.commits else None


@dataclass(frozen=True)
class Asked:
    path: str
    host: str
    range: str | None
    authorization: str | None


@dataclass
class Trouble:
    """What goes wrong: `cut_at` bytes of a file the connection is lost, or it answers a status.

    `on_chunk` is called before each piece is sent, with the file and the place in it.
    """

    cut_at: dict[str, int] = field(default_factory=dict)
    status: dict[str, int] = field(default_factory=dict)
    replaced: Files = field(default_factory=dict)
    on_chunk: Callable[[str, int], None] = lambda path, at: None


class HubDouble:
    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.asked: list[Asked] = []
        self.trouble = Trouble()
        self.server = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def publish(self, hub_id: str, files: Files, *, token: str | None = None) -> str:
        """Put a commit on the main branch; its name."""
        text = repr(sorted((path, hashlib.sha1(data).hexdigest()) for path, data in files.items()))
        commit = hashlib.sha1(text.encode()).hexdigest()
        repository = self.repositories.setdefault(hub_id, Repository({}, {}, token))
        repository.commits[commit] = files
        repository.refs["main"] = commit
        return commit

    def files_asked(self) -> list[Asked]:
        return [asked for asked in self.asked if "/resolve/" in asked.path]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: object) -> None:
        """Nothing: connections that break off are what some tests are about."""


@contextmanager
def hub_double() -> Iterator[HubDouble]:
    hub = HubDouble()
    thread = threading.Thread(target=hub.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


def is_large(path: str) -> bool:
    return path.endswith((".safetensors", ".bin", ".model"))


def tree_entry(path: str, data: bytes) -> dict[str, Any]:
    """A file as the tree route lists it; large ones are LFS files, whose blob is a pointer."""
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data)}
    if is_large(path):
        sha256 = hashlib.sha256(data).hexdigest()
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\n".encode()
        entry["lfs"] = {"oid": sha256, "size": len(data), "pointerSize": len(pointer)}
        data = pointer
    blob = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
    return entry | {"oid": blob}


def _handler(hub: HubDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(
                Asked(
                    path=path,
                    host=self.headers["Host"],
                    range=self.headers["Range"],
                    authorization=self.headers["Authorization"],
                )
            )
            found = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/(.+)", path)
            if found:
                return self._describe(*found.groups())
            found = re.fullmatch(r"/(?:cdn/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
            if found:
                return self._resolve(*found.groups(), is_cdn=path.startswith("/cdn/"))
            return self._answer(404)

        def _describe(self, hub_id: str, route: str, revision: str) -> None:
            repository = hub.repositories.get(hub_id)
            if repository is None:
                return self._answer(401, code="RepoNotFound")
            commit = repository.find(revision)
            if commit is None:
                return self._answer(404, code="RevisionNotFound")
            files = repository.commits[commit]
            if route == "revision":
                siblings = [{"rfilename": path} for path in files]
                return self._json({"id": hub_id, "sha": commit, "siblings": siblings})
            folders = sorted({path.rpartition("/")[0] for path in files} - {""})
            entries = [{"type": "directory", "path": each, "oid": "0" * 40} for each in folders]
            return self._json(entries + [tree_entry(*each) for each in files.items()])

        def _resolve(self, hub_id: str, revision: str, path: str, *, is_cdn: bool) -> None:
            repository = hub.repositories[hub_id]
            allowed = f"Bearer {repository.token}"
            if not is_cdn and repository.token and self.headers["Authorization"] != allowed:
                code = 403 if self.headers["Authorization"] else 401
                return self._answer(code, code="GatedRepo")
            if path in hub.trouble.status:
                return self._answer(hub.trouble.status[path])
            if is_large(path) and not is_cdn:
                # Another host of the same server: whoever follows must not show the token there.
                port = hub.server.server_address[1]
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{port}/cdn{self.path}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
            data = repository.commits[revision][path]
            return self._send(path, hub.trouble.replaced.get(path, data))

        def _send(self, path: str, data: bytes) -> None:
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
            start = int(asked[1]) if asked else 0
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            end = hub.trouble.cut_at.get(path, len(data))
            for at in range(start, end, CHUNK_BYTES):
                hub.trouble.on_chunk(path, at)
                self.wfile.write(data[at : min(at + CHUNK_BYTES, end)])
            if end < len(data):
                # From now on there is no connection to be had for this file.
                hub.trouble.status[path] = 503
                self.close_connection = True
                self.connection.shutdown(2)

        def _json(self, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _answer(self, status: int, *, code: str | None = None) -> None:
            self.send_response(status)
            if code is not None:
                self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Nothing: tests read `asked`."""

    return Handler
