"""The benchmark of readers: who asks, what a refusal does to it, and what its rows say."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from flask import Flask
from werkzeug.serving import make_server

from app.stack.environment import Address
from bench.api_readers import BASELINE, summarise, to_markdown
from bench.web_servers import BARE_PATH, Reader, create_bare_app, read_at_once


@pytest.fixture
def app() -> Flask:
    return create_bare_app()


@pytest.fixture
def address(app: Flask) -> Iterator[Address]:
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Address(host="127.0.0.1", port=server.server_port)
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_reader_asks_at_once_and_as_often_as_it_should(app: Flask, address: Address) -> None:
    together = threading.Barrier(8)

    @app.before_request
    def wait_for_all() -> None:
        together.wait(20)

    reader = Reader(address=address, path=BARE_PATH, headers={})
    seconds = read_at_once(reader, readers=8, requests=3)
    assert len(seconds) == 24
    assert min(seconds) > 0


def test_a_refused_answer_ends_the_run_instead_of_being_counted(address: Address) -> None:
    reader = Reader(address=address, path="/elsewhere", headers={})
    with pytest.raises(RuntimeError, match="/elsewhere answered 404"):
        read_at_once(reader, readers=2, requests=1)


def test_ratios_are_taken_within_a_round_and_the_median_of_rounds_is_told() -> None:
    # The second round met a machine ten times as slow: its ratio is the same.
    quick = {BASELINE: [0.010, 0.010], "batches": [0.030, 0.030]}
    slow = {name: [10 * value for value in values] for name, values in quick.items()}
    last = {BASELINE: [0.010, 0.010], "batches": [0.050, 0.050]}
    bare, batches = summarise([quick, slow, last])
    assert (bare["p50_ratio"], bare["p95_ratio"], bare["answers"]) == (1.0, 1.0, 6)
    assert batches["p50_ms"] == pytest.approx(50.0)
    assert batches["p50_ratio"] == batches["p95_ratio"] == pytest.approx(3.0)
    text = to_markdown([bare, batches], {"machine": "a quiet one"})
    assert "- machine: a quiet one" in text
    assert "| batches | 50.0 | 3.00x | 50.0 | 3.00x |" in text
