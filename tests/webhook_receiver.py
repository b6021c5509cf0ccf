"""A webhook receiver for tests: a real HTTP server that answers as it is told and remembers."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.body)
        return payload


@dataclass
class Reply:
    status: int = 204
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Receiver:
    """`answer` is called in the thread of the request, so it may wait."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answer: Callable[[Received], Reply] = lambda _: Reply()
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        self.scheme = "http"

    @property
    def port(self) -> int:
        return self.server.server_address[1]

    def url(self, path: str = "/hook", *, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    def on(self, path: str) -> list[Received]:
        return [message for message in self.received if message.path == path]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: object) -> None:
        """Nothing: clients that hang up are what some tests are about."""


@contextmanager
def receiving(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A running receiver; with `tls` it speaks HTTPS."""
    receiver = Receiver()
    if tls is not None:
        receiver.server.socket = tls.wrap_socket(receiver.server.socket, server_side=True)
        receiver.scheme = "https"
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
    thread.join()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            message = Received(
                path=self.path,
                headers={name.lower(): value for name, value in self.headers.items()},
                body=self.rfile.read(length),
            )
            receiver.received.append(message)
            reply = receiver.answer(message)
            self.send_response(reply.status)
            for name, value in ({"Content-Length": str(len(reply.body))} | reply.headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *args: object) -> None:
            """Nothing: a test reads `received`."""

    return Handler
