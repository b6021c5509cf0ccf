"""Demos that were broken off: the next one ends what they left, and says what it waits for."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from sqlalchemy import update

from app.access import Actor
from app.cli.demo_batch import DemoBatch
from app.cli.demo_login import Login
from app.cli.demo_report import print_quote
from app.cli.demo_runs import CancelledRun, take_over
from app.cli.demo_waiting import Waiting
from app.db import Database
from app.models import Batch, BatchState
from app.services import batches, expanding, leases
from app.services.reuse import estimate_reuse
from app.stack import folder as folder_module
from app.stack.folder import StateFolder
from tests.integration.lease_tools import claim, claim_some, succeed

pytestmark = pytest.mark.usefixtures("weights")

Create = Callable[..., Batch]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setattr(folder_module, "RUN_ROOT", tmp_path)
    return StateFolder.create(tmp_path / "state")


@pytest.fixture
def start(database: Database, actor: Actor, create: Create) -> Callable[[], DemoBatch]:
    """A batch of a demo, launched and expanded."""

    def start() -> DemoBatch:
        batch = create()
        with database.workspace_scope(actor) as session:
            batches.launch_batch(session, actor, batch.id)
        with database.system_scope() as session:
            expanding.expand_chunk(session, batch.id)
        login = Login(email="demo@example.com", password="secret")
        return DemoBatch(actor=actor, batch=batch, login=login, is_resumed=False)

    return start


def state_of(database: Database, demo: DemoBatch) -> BatchState:
    with database.system_scope() as session:
        return session.get_one(Batch, demo.batch.id).state


def break_off(folder: StateFolder) -> None:
    """As if the processes of all demos had ended."""
    path = folder.root / "demo_runs.json"
    runs = json.loads(path.read_text())
    for run in runs:
        run["process"]["created_at"] = 0.0
    path.write_text(json.dumps(runs))


def test_what_a_demo_left_behind_is_cancelled_by_the_next_one(
    database: Database, folder: StateFolder, start: Callable[[], DemoBatch]
) -> None:
    first = start()
    assert take_over(database, first, folder) == []
    break_off(folder)
    mine = start()
    found = take_over(database, mine, folder)
    assert found == [CancelledRun(name=first.batch.name, done=0, total=first.batch.variant_count)]
    assert state_of(database, first) is BatchState.CANCELLED
    assert state_of(database, mine) is BatchState.RUNNING
    break_off(folder)
    assert take_over(database, mine, folder) == [], "it goes on with its own"
    assert state_of(database, mine) is BatchState.RUNNING


def test_a_demo_leaves_what_is_watched_and_what_the_dashboard_launched(
    database: Database, folder: StateFolder, start: Callable[[], DemoBatch]
) -> None:
    of_the_dashboard, watched, mine = start(), start(), start()
    take_over(database, watched, folder)
    assert take_over(database, mine, folder) == []
    assert state_of(database, of_the_dashboard) is BatchState.RUNNING
    assert state_of(database, watched) is BatchState.RUNNING
    break_off(folder)
    assert len(take_over(database, start(), folder)) == 2, "both are remembered"


def test_an_unreadable_note_is_none(
    database: Database, folder: StateFolder, start: Callable[[], DemoBatch]
) -> None:
    (folder.root / "demo_runs.json").write_text("{")
    assert take_over(database, start(), folder) == []


def test_a_demo_says_what_it_waits_for(
    database: Database, actor: Actor, start: Callable[[], DemoBatch]
) -> None:
    other, mine = start(), start()

    def reason() -> str:
        with database.workspace_scope(actor) as session:
            progress = batches.get_progress(session, actor, mine.batch.id)
        return Waiting(database, mine).reason(progress)

    assert reason() == "waiting for a worker"
    with database.system_scope() as session:
        group = leases.claim(session, worker="worker-1")
    assert group is not None
    assert group.jobs[0].batch_id == other.batch.id
    count = other.batch.variant_count
    assert reason() == f"waiting for “{other.batch.name}” ({count} to render)"
    with database.system_scope() as session:
        leases.release(session, token=group.token)
        session.execute(update(Batch).where(Batch.id != mine.batch.id).values(state="paused"))
        assert leases.claim(session, worker="worker-1") is not None
    assert reason() == ""


def test_the_quote_says_what_is_reused_and_what_is_then_due(
    database: Database, create: Create, actor: Actor, start: Callable[[], DemoBatch]
) -> None:
    def quoted(demo: DemoBatch) -> str:
        console = Console(file=io.StringIO(), width=200)
        print_quote(console, database, demo)
        return console.file.getvalue()  # type: ignore[attr-defined]

    login = Login(email="demo@example.com", password="secret")

    def new() -> DemoBatch:
        return DemoBatch(actor=actor, batch=create(), login=login, is_resumed=False)

    assert "reused" not in quoted(new())
    first = start()
    group = claim_some(database, limit=5)
    assert all(succeed(database, job.job_id, group.token) for job in group.jobs)
    done, total = len(group.jobs), first.batch.variant_count
    assert 0 < done < total
    second = new()
    with database.workspace_scope(actor) as session:
        reuse = estimate_reuse(session, actor, second.batch.id)
        price = batches.get_progress(session, actor, second.batch.id).quote.cost_micros
    assert reuse.variant_count == done
    assert reuse.cost_micros == pytest.approx(price * (total - done) / total, abs=1)
    assert f"{done} of {total} were rendered before and are reused free of charge" in quoted(second)
    while (rest := claim(database)) is not None:
        assert all(succeed(database, job.job_id, rest.token) for job in rest.jobs)
    third = new()
    assert f"{total} of {total} were rendered before" in quoted(third)
    assert "so this run costs 0.00 USD at most" in quoted(third)
    with database.workspace_scope(actor) as session:
        forced = create(force_render=True)
        assert estimate_reuse(session, actor, forced.id).variant_count == 0
