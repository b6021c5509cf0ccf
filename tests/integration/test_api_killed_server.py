"""A web process killed in the middle of a request, and the request sent again to another one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select, text

from app.config import Config
from app.db import Database
from app.models import Base, Batch, Campaign, IdempotencyKey, Workspace
from app.paths import ROOT
from app.services.webhook_signing import unseal
from app.stack.commands import web_command
from app.stack.environment import Address
from tests.api import make_key
from tests.worker_processes import environment_of, wait_until

SETTINGS = {"num_frames": 5, "num_inference_steps": 4}
ORDER = {"prompt": "a red sneaker on a beach", "settings": SETTINGS}
TIMEOUT_S = 60.0

pytestmark = pytest.mark.usefixtures("weights")


@dataclass
class WebProcesses:
    """Web servers as `adloom web` starts them; those that still run are killed in the end."""

    config: Config
    folder: Path
    key: str
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> httpx.Client:
        """A client of a new server, once that answers."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = Address(host="127.0.0.1", port=probe.getsockname()[1])
        log = self.folder / f"web-{len(self.started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                web_command(address),
                cwd=ROOT,
                env=environment_of(self.config) | {"ADLOOM_BASE_URL": address.url},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        headers = {"Authorization": f"Bearer {self.key}", "Idempotency-Key": "order-1"}
        client = httpx.Client(base_url=f"{address.url}/v1", headers=headers, timeout=TIMEOUT_S)

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                return client.get("/openapi.json").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(answers, timeout_s=TIMEOUT_S)
        return client

    def kill(self) -> None:
        """SIGKILL to the last server, master and worker: nothing of it runs another line."""
        process = self.started[-1]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


@pytest.fixture
def web(
    config: Config, database: Database, workspace: Workspace, tmp_path: Path
) -> Iterator[WebProcesses]:
    processes = WebProcesses(config, tmp_path, make_key(database, workspace))
    yield processes
    processes.kill()


@dataclass
class Sent:
    """A request under way in a thread of its own, and what became of it."""

    client: httpx.Client
    path: str
    body: dict[str, Any]
    outcome: httpx.Response | httpx.TransportError | None = None

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def ended(self) -> httpx.Response | httpx.TransportError | None:
        self._thread.join(TIMEOUT_S)
        return self.outcome

    def _send(self) -> None:
        try:
            self.outcome = self.client.post(self.path, json=self.body)
        except httpx.TransportError as error:
            self.outcome = error


def count(database: Database, model: type[Base]) -> int:
    with database.system_scope() as session:
        return session.scalar(select(func.count()).select_from(model)) or 0


def test_a_server_killed_between_commit_and_answer_made_one_batch_with_one_answer(
    web: WebProcesses, config: Config, database: Database
) -> None:
    # The transaction commits at once; the answer waits for a render that nobody makes.
    lost = Sent(web.start(), "/generations?wait=30", ORDER)
    wait_until(lambda: count(database, IdempotencyKey) == 1)
    web.kill()
    assert isinstance(lost.ended(), httpx.TransportError)
    assert count(database, Batch) == 1

    client = web.start()
    again = client.post("/generations", json=ORDER)
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (201, "true")
    with database.system_scope() as session:
        assert again.json()["id"] == str(session.scalars(select(Batch.id)).one())
        sealed = session.scalars(select(IdempotencyKey.body_sealed)).one()
    assert again.text == unseal(sealed, secret_key=config.secret_key)
    assert client.post("/generations", json=ORDER).content == again.content
    assert count(database, Batch) == 1


def test_a_server_killed_before_the_commit_made_nothing_and_keeps_no_key(
    web: WebProcesses, database: Database, campaign: Campaign
) -> None:
    body = {"campaign_id": str(campaign.id), "launch": True}
    with database.system_scope() as session:
        # The batch is made, and the answer is about to be kept beside it.
        session.execute(text("LOCK TABLE idempotency_keys IN SHARE MODE"))
        lost = Sent(web.start(), "/batches", body)
        wait_until(lambda: is_anybody_waiting(database))
        web.kill()
    assert isinstance(lost.ended(), httpx.TransportError)

    client = web.start()
    answers: list[httpx.Response] = []

    def is_taken() -> bool:
        answers.append(client.post("/batches", json=body))
        return answers[-1].status_code != 409

    wait_until(is_taken)
    # Postgres may notice a moment later that its client is gone.
    assert {answer.json()["code"] for answer in answers[:-1]} <= {"idempotency_key_in_use"}
    made = answers[-1]
    assert (made.status_code, "Idempotency-Replayed" in made.headers) == (201, False)
    assert client.post("/batches", json=body).content == made.content
    assert count(database, Batch) == 1


def is_anybody_waiting(database: Database) -> bool:
    waiting = text(
        "SELECT count(*) FROM pg_locks"
        " WHERE NOT granted AND relation = 'idempotency_keys'::regclass"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with database.system_scope() as session:
        return bool(session.scalar(waiting))
