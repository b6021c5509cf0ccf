"""What integration tests share: rows to begin with, the dashboard, workers, receivers."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select, text

from app.access import Actor, Role
from app.config import Config, WorkerSettings
from app.db import Database
from app.models import Batch, Campaign, JobPurpose, RenderJob, Workspace
from app.services import batches
from app.stack.folder import StateFolder
from app.stack.stack import stop_everything
from app.storage import Storage
from tests.command_line import Command
from tests.engines import NullEngine
from tests.factories import make_batch, make_campaign, make_jobs, make_workspace
from tests.integration.batch_tools import make_spec
from tests.integration.schedule_tools import Shelf
from tests.integration.webhook_tools import Desk
from tests.rendering import SETTINGS_OF_TESTS, Run
from tests.web import Browser, make_app, make_member
from tests.webhook_receiver import Receiver, receiving

if TYPE_CHECKING:
    from workers.render_worker import RenderWorker


@pytest.fixture
def campaign(database: Database, actor: Actor) -> Campaign:
    """A campaign in `workspace` with typed values."""
    with database.system_scope() as session:
        return make_campaign(session, workspace_id=actor.workspace_id)


@pytest.fixture
def create(database: Database, actor: Actor, campaign: Campaign) -> Callable[..., Batch]:
    """Makes batches of `campaign`."""

    def create(**changes: Any) -> Batch:
        with database.workspace_scope(actor) as session:
            return batches.create_batch(
                session, actor, campaign_id=campaign.id, spec=make_spec(**changes)
            )

    return create


@pytest.fixture
def app(config: Config) -> Flask:
    """The dashboard on the test's database."""
    return make_app(config)


@pytest.fixture
def editor(app: Flask, database: Database, workspace: Workspace) -> Browser:
    """Signed in as an editor of `workspace`."""
    browser = Browser(app)
    browser.sign_in(make_member(database, workspace, Role.EDITOR))
    browser.get("/")
    return browser


@pytest.fixture
def desk(database: Database, config: Config, actor: Actor) -> Desk:
    """Webhooks of `workspace`, with a dispatcher run by hand."""
    return Desk(database, config, actor)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A local server that takes messages."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def batch(database: Database, workspace: Workspace) -> Batch:
    """A running batch without jobs, in `workspace`."""
    with database.system_scope() as session:
        return make_batch(session, campaign=make_campaign(session, workspace_id=workspace.id))


@pytest.fixture
def foreign_batch(database: Database) -> Batch:
    """A running batch without jobs, in a workspace of its own."""
    with database.system_scope() as session:
        other = make_workspace(session)
        return make_batch(session, campaign=make_campaign(session, workspace_id=other.id))


@pytest.fixture
def read_job(database: Database) -> Callable[[UUID], RenderJob]:
    """The job as it stands in the database now."""

    def read(job_id: UUID) -> RenderJob:
        with database.system_scope() as session:
            return session.scalars(select(RenderJob).where(RenderJob.id == job_id)).one()

    return read


@pytest.fixture
def pass_time(database: Database) -> Callable[..., None]:
    """Shift times of render jobs into the past, as if so many seconds had gone by."""

    def shift(seconds: float, *columns: str) -> None:
        names = columns or ("lease_expires_at", "deadline_at", "scheduled_at")
        moved = ", ".join(f"{name} = {name} - make_interval(secs => {seconds})" for name in names)
        with database.system_scope() as session:
            session.execute(text(f"UPDATE render_jobs SET {moved}"))

    return shift


@pytest.fixture
def run(config: Config, database: Database, storage: Storage) -> Iterator[Run]:
    """Starts render workers and stops those that the test leaves running."""
    # Local import: it brings the media libraries in, which most tests do without.
    from workers.render_worker import RenderWorker

    started: list[RenderWorker] = []

    def start(
        engine: NullEngine,
        *,
        store: Storage = storage,
        settings: WorkerSettings = SETTINGS_OF_TESTS,
    ) -> RenderWorker:
        worker = RenderWorker(
            replace(config, workers=settings),
            database,
            store,
            worker=f"worker-{len(started)}",
            engine_factory=lambda _: engine,
        )
        worker.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.stop()
        worker.join(5.0)


@pytest.fixture
def enqueue(database: Database, batch: Batch) -> Callable[..., list[UUID]]:
    """Puts groups of prompts into the queue as jobs of `batch`."""

    def make(*groups: list[str], purpose: JobPurpose = JobPurpose.FINAL) -> list[UUID]:
        with database.system_scope() as session:
            return make_jobs(session, batch, *groups, purpose=purpose)

    return make


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """Where an installation may keep its state; what runs from there is stopped in the end."""
    # Not below pytest's folder, which every run of pytest closes to other users again.
    root = Path(tempfile.mkdtemp(prefix="adl-", dir="/tmp"))
    path = root / "state"
    yield path
    folder = StateFolder(path.resolve())
    if folder.run.exists():
        stop_everything(StateFolder.create(path), say=print)
        shutil.rmtree(folder.run)
    shutil.rmtree(root)


@pytest.fixture
def adloom(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line on `state_dir`, without services from outside."""
    for name in ("DATABASE_URL", "REDIS_URL", "STORAGE_URL", "ADLOOM_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Command(state_dir, probe.getsockname()[1])


@pytest.fixture
def shelf(database: Database, actor: Actor) -> Shelf:
    """Schedules in `workspace`."""
    return Shelf(database, actor)
