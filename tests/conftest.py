"""Fixtures on real servers: one Postgres and one Valkey per run, a fresh database per test."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import make_url
from tokenizers import Tokenizer, models, pre_tokenizers

from app.access import Actor, Role
from app.config import Config
from app.db import Database
from app.models import Workspace
from app.services import schema
from app.stack.folder import StateFolder
from app.stack.postgres import PostgresServer
from app.stack.valkey import ValkeyServer
from tests.factories import make_user, make_workspace

if TYPE_CHECKING:
    from app.storage import Storage

TEMPLATE = "adloom_template"
_numbers = count(1)


@pytest.fixture(scope="session")
def state_folder() -> Iterator[StateFolder]:
    # Short, because unix sockets lie below it.
    root = Path(tempfile.mkdtemp(prefix="adl-", dir="/tmp"))
    folder = StateFolder.create(root)
    yield folder
    shutil.rmtree(folder.run, ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(state_folder: StateFolder) -> Iterator[PostgresServer]:
    server = PostgresServer(state_folder, say=lambda _: None)
    server.ensure_running()
    try:
        with _superuser(server.url) as connection:
            # The data is thrown away at the end, so nothing need reach the disk.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("ALTER SYSTEM SET autovacuum_naptime = '1h'")
            connection.execute("SELECT pg_reload_conf()")
        yield server
    finally:
        server.stop(immediately=True)


@pytest.fixture(scope="session")
def redis_url(state_folder: StateFolder) -> Iterator[str]:
    server = ValkeyServer(state_folder, say=lambda _: None)
    server.ensure_running()
    yield server.url
    server.stop(immediately=True)


@dataclass(frozen=True)
class Databases:
    """Makes and drops databases of the test server."""

    base: Config

    def create(self, *, template: str | None) -> Config:
        """A new database, empty or a copy of `template`."""
        name = f"test_{next(_numbers)}"
        source = f" TEMPLATE {template} STRATEGY FILE_COPY" if template else ""
        with _superuser(self.base.database_url) as connection:
            connection.execute(f"CREATE DATABASE {name}{source}".encode())
        return self.config(name)

    def drop(self, config: Config) -> None:
        name = make_url(config.database_url).database
        with _superuser(self.base.database_url) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def config(self, name: str) -> Config:
        def renamed(url: str) -> str:
            return make_url(url).set(database=name).render_as_string(hide_password=False)

        return replace(
            self.base,
            database_url=renamed(self.base.database_url),
            database_app_url=renamed(self.base.database_app_url),
            database_system_url=renamed(self.base.database_system_url),
        )


@pytest.fixture(scope="session")
def databases(postgres: PostgresServer, state_folder: StateFolder) -> Databases:
    base = Config.from_environment(
        {
            "DATABASE_URL": postgres.url,
            # Tests that use the broker ask for `redis_url` and put it in.
            "REDIS_URL": "redis://127.0.0.1:1/0",
            "STORAGE_URL": state_folder.artifacts.as_uri(),
            "ADLOOM_SECRET_KEY": "tests-only-" + "x" * 32,
            "ADLOOM_STATE_DIR": str(state_folder.root),
        }
    )
    databases = Databases(base)
    with _superuser(base.database_url) as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}".encode())
    schema.upgrade(databases.config(TEMPLATE))
    return databases


@pytest.fixture
def empty_config(databases: Databases) -> Iterator[Config]:
    """Settings that lead to a database without any table."""
    config = databases.create(template=None)
    yield config
    databases.drop(config)


@pytest.fixture
def config(databases: Databases, tmp_path: Path) -> Iterator[Config]:
    """Settings that lead to a database of this test's own, with the current schema, no rows."""
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    config = databases.create(template=TEMPLATE)
    yield replace(config, storage_url=artifacts.as_uri())
    databases.drop(config)


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    database = Database(config)
    yield database
    database.dispose()


@pytest.fixture
def storage(config: Config) -> Storage:
    # Here, so that tests of the database alone do not load the S3 client.
    from app.storage import storage_from_url

    return storage_from_url(config)


@pytest.fixture
def workspace(database: Database) -> Workspace:
    with database.system_scope() as session:
        return make_workspace(session, name="Northwind")


@pytest.fixture
def actor(database: Database, workspace: Workspace) -> Actor:
    """The owner of `workspace`."""
    with database.system_scope() as session:
        user = make_user(session, workspace=workspace)
    return Actor(workspace_id=workspace.id, role=Role.OWNER, user_id=user.id)


def _superuser(url: str) -> psycopg.Connection:
    """A connection to the maintenance database of the server behind `url`."""
    parts = make_url(url)
    return psycopg.connect(
        host=str(parts.query["host"]), user=parts.username, dbname="postgres", autocommit=True
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly which part of the tests did not run for want of a browser."""
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if "browser" in report.keywords
    ]
    if skipped:
        terminalreporter.section("BROWSER TESTS SKIPPED", red=True, bold=True)
        terminalreporter.line(
            f"{len(skipped)} browser tests were SKIPPED: there is no Chromium. Install one "
            "(Debian: apt-get install chromium), or set ADLOOM_CHROMIUM to its executable.",
            red=True,
        )


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The least that the control plane reads of a checkpoint: its files' hashes, its tokenizer."""
    folder = tmp_path / "models" / "tiny"
    for part in ("tokenizer", "transformer"):
        (folder / part).mkdir(parents=True)
    index = {
        "_class_name": "WanPipeline",
        "tokenizer": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "WanTransformer3DModel"],
    }
    (folder / "model_index.json").write_text(json.dumps(index))
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    # A safetensors file is the length of its header, the header as JSON, and the tensors.
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    file = folder / "transformer" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(folder.parent))
    return folder
