"""Real web processes for benchmarks, and readers who ask them all at once."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from threading import Barrier
from typing import Final

from flask import Flask, Response, jsonify

from app.paths import ROOT
from app.stack.commands import web_command
from app.stack.environment import Address

ADLOOM: Final = "app.factory:create_app()"
BARE: Final = "bench.web_servers:create_bare_app()"
BARE_PATH: Final = "/bare"
START_TIMEOUT_S: Final = 60.0
ANSWER_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What every reader asks for, and where."""

    address: Address
    path: str
    headers: Mapping[str, str]


def create_bare_app() -> Flask:
    """The least that Flask can do: one route that answers a small JSON document."""
    app = Flask(__name__)

    @app.get(BARE_PATH)
    def bare() -> Response:
        return jsonify(id=1)

    return app


@contextmanager
def web_server(
    application: str, environment: Mapping[str, str], *, ready: str
) -> Iterator[Address]:
    """gunicorn as `adloom web` runs it, with this application, from when it answers at `ready`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = Address(host="127.0.0.1", port=probe.getsockname()[1])
    *command, adloom = web_command(address, access_log=os.devnull)
    if adloom != ADLOOM:
        raise RuntimeError(f"adloom web starts {adloom}, and not {ADLOOM}")
    process = subprocess.Popen(
        [*command, "--log-level", "warning", application],
        cwd=ROOT,
        env={**os.environ, **environment, "ADLOOM_LOG_LEVEL": "WARNING"},
    )
    try:
        _wait_until_ready(process, address, ready)
        yield address
    finally:
        process.terminate()
        process.wait()


def read_at_once(reader: Reader, *, readers: int, requests: int) -> list[float]:
    """Seconds of each answer, of so many readers who each ask again as soon as they are answered.

    Each has a connection of its own. RuntimeError when an answer is not 200.
    """
    together = Barrier(readers)

    def read() -> list[float]:
        together.wait()
        return _read(reader, requests)

    with ThreadPoolExecutor(max_workers=readers) as pool:
        asked = [pool.submit(read) for _ in range(readers)]
        return [seconds for one in asked for seconds in one.result()]


def _read(reader: Reader, requests: int) -> list[float]:
    connection = http.client.HTTPConnection(
        reader.address.host, reader.address.port, timeout=ANSWER_TIMEOUT_S
    )
    found = []
    try:
        for _ in range(requests):
            start = time.perf_counter()
            connection.request("GET", reader.path, headers=dict(reader.headers))
            answer = connection.getresponse()
            body = answer.read()
            found.append(time.perf_counter() - start)
            if answer.status != HTTPStatus.OK:
                raise RuntimeError(f"{reader.path} answered {answer.status}: {body[:300]!r}")
    finally:
        connection.close()
    return found


def _wait_until_ready(process: subprocess.Popen[bytes], address: Address, path: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the web server for {path} did not start")
        try:
            _read(Reader(address=address, path=path, headers={}), 1)
        except OSError:
            time.sleep(0.1)
        else:
            return
