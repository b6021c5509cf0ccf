"""What is up, where it is, what is wrong, and how to mend it."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata

import psycopg
import redis

from app.config import Config
from app.db import Database
from app.errors import AppError, StorageError
from app.services import missing_files, schema
from app.stack.daemon import Daemon
from app.stack.environment import Address, compose
from app.stack.folder import Damage, StateFolder
from app.stack.losses import find_lost_database
from app.stack.ports import find_obstacle
from app.stack.postgres import PostgresServer
from app.stack.program import command
from app.stack.record import Record, running
from app.stack.servers import Servers
from app.storage import storage_from_url
from engine import registry
from engine.errors import EngineError

LOW_DISK_BYTES = 1_000_000_000
PACKAGES = ("adloom", "torch", "diffusers", "celery", "sqlalchemy")
NEWEST_COUNT = 20
# In place of what the secrets hold, where they cannot be read.
UNREAD = {"ADLOOM_SECRET_KEY": "unread" * 8, "REDIS_URL": "redis://127.0.0.1:0/0"}
EXPECTED_CHILDREN = frozenset({"control", "render"})


class Health(StrEnum):
    OK = "ok"
    OFF = "off"  # not running, and nothing says that it should
    WARNING = "warning"  # works, but not as it should where others can reach it
    WRONG = "wrong"


@dataclass(frozen=True)
class Check:
    """One line of the report; `remedy` says how to mend what is wrong."""

    subject: str
    health: Health
    detail: str
    remedy: str = ""


def examine(folder: StateFolder, environ: Mapping[str, str], address: Address) -> Iterator[Check]:
    """Look at everything without starting or changing anything."""
    record = running(folder)
    yield from _versions()
    yield _disk(folder)
    secrets = folder.find_secrets() if folder.has_secrets else None
    damaged = isinstance(secrets, Damage)
    if isinstance(secrets, Damage):
        yield Check("Secrets", Health.WRONG, secrets.reason, secrets.remedy)
    given = {name: value for name, value in environ.items() if value}
    # What only the secrets open is not looked at: the embedded Valkey.
    known = {**UNREAD, **given} if secrets is None or damaged else given
    servers = Servers(folder, known, say=lambda message: None)
    for server in servers.by_variable.values():
        yield _embedded(folder, server, is_expected=record is not None)
    if "REDIS_URL" not in servers.by_variable and not environ.get("REDIS_URL"):
        what = "not asked, for its password cannot be read" if damaged else "not running"
        yield Check("Valkey", Health.OFF, f"embedded, {what}")
    yield from _processes(folder, record)
    if record is None and not _orphans(folder):
        yield _port(address)
    yield _weights()
    try:
        config = Config.from_environment(
            compose(known, folder=folder, servers=servers, address=address)
        )
    except AppError as error:
        yield Check("Configuration", Health.WRONG, error.message, f"Set {error.field}.")
        return
    yield from _services(config, environ, servers)


def _services(config: Config, environ: Mapping[str, str], servers: Servers) -> Iterator[Check]:
    """What the configuration leads to: database, broker, files, and what webhooks may reach."""
    if "DATABASE_URL" not in servers.by_variable:
        yield _external_database(config)
    if environ.get("REDIS_URL"):
        yield _external_broker(config)
    embedded = servers.by_variable.get("DATABASE_URL")
    has_records = False
    if embedded is None or embedded.is_up():
        schema_check = _schema(config)
        has_records = schema_check.health is Health.OK
        yield schema_check
    store_check = _artifact_store(config)
    yield store_check
    if has_records and store_check.health is Health.OK:
        yield _newest_files(config)
    if config.webhook_allowed_networks:
        yield _open_networks(config)


def _versions() -> Iterator[Check]:
    yield Check("Python", Health.OK, platform.python_version())
    for name in PACKAGES:
        try:
            yield Check(name, Health.OK, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Check(name, Health.WRONG, "not installed", "Run `make setup`.")


def _disk(folder: StateFolder) -> Check:
    # Where everything is outside, the folder is not there.
    place = next(path for path in (folder.root, *folder.root.parents) if path.exists())
    free = shutil.disk_usage(place).free
    detail = f"{folder.root} ({free / 1e9:.1f} GB free)"
    if free < LOW_DISK_BYTES:
        remedy = "Free some space, or move the state folder (ADLOOM_STATE_DIR)."
        return Check("State folder", Health.WRONG, detail, remedy)
    return Check("State folder", Health.OK, detail)


def _embedded(folder: StateFolder, server: Daemon, *, is_expected: bool) -> Check:
    up, down = (command(verb, state_dir=folder.root) for verb in ("up", "down"))
    if server.is_up():
        return Check(server.name, Health.OK, f"{server.version()}, embedded, pid {server.pid}")
    if server.pid is not None:
        remedy = f"Run `{down}`, then `{up}`."
        return Check(server.name, Health.WRONG, f"pid {server.pid} does not answer", remedy)
    if damage := server.find_damage():
        return Check(server.name, Health.WRONG, damage.reason, damage.remedy)
    if isinstance(server, PostgresServer) and (lost := find_lost_database(folder)):
        return Check(server.name, Health.WRONG, lost.reason, lost.remedy)
    if is_expected:
        remedy = "The supervisor starts it again; if it does not, read the log."
        return Check(server.name, Health.WRONG, "stopped while Adloom runs", remedy)
    return Check(server.name, Health.OFF, "embedded, not running", f"Start it with `{up}`.")


def _processes(folder: StateFolder, record: Record | None) -> Iterator[Check]:
    up, down = (command(verb, state_dir=folder.root) for verb in ("up", "down"))
    if record is None:
        if orphans := _orphans(folder):
            detail = f"killed; {', '.join(orphans)} still run"
            yield Check("Supervisor", Health.WRONG, detail, f"Run `{down}` or `{up}`.")
        else:
            yield Check("Supervisor", Health.OFF, "not running", f"Start it with `{up}`.")
        return
    detail = f"pid {record.supervisor.pid}, dashboard {record.web_url or 'not started'}"
    yield Check("Supervisor", Health.OK, detail)
    expected = EXPECTED_CHILDREN | ({"web"} if record.web_url else set())
    for name in sorted(expected):
        child = record.children.get(name)
        if child is not None and child.find() is not None:
            yield Check(f"  {name}", Health.OK, f"pid {child.pid}")
        else:
            remedy = f"Read {folder.log(name)}; the supervisor starts it again."
            yield Check(f"  {name}", Health.WRONG, "not running", remedy)


def _orphans(folder: StateFolder) -> list[str]:
    """Names of the processes that a killed supervisor left behind."""
    left = Record.read(folder)
    return [] if left is None else [name for name, child in left.children.items() if child.find()]


def _port(address: Address) -> Check:
    if obstacle := find_obstacle(address):
        return Check("Port", Health.WRONG, obstacle.reason, obstacle.remedy)
    return Check("Port", Health.OK, f"{address.port} is free for the dashboard")


def _weights() -> Check:
    """Damaged weights are wrong, and so are none at all; other models need not be there."""
    remedy = "Restore the checkpoint, or point ADLOOM_MODEL_DIR to its folder."
    installed = [m.model_id for m in registry.list_models() if registry.is_installed(m.model_id)]
    if not installed:
        folder = registry.checkpoint_folder(registry.list_models()[0].model_id)
        return Check("Model weights", Health.WRONG, f"there are none in {folder.parent}", remedy)
    try:
        names = [f"{model} ({registry.weights_fingerprint(model)[:12]})" for model in installed]
    except EngineError as error:
        return Check("Model weights", Health.WRONG, str(error), remedy)
    return Check("Model weights", Health.OK, ", ".join(names))


def _external_database(config: Config) -> Check:
    address = config.database_url.replace("+psycopg", "", 1)
    try:
        with psycopg.connect(address, connect_timeout=5) as connection:
            version = connection.info.parameter_status("server_version")
    except psycopg.OperationalError as error:
        reason = str(error).strip().splitlines()[-1]
        return Check("Postgres", Health.WRONG, reason, "Check DATABASE_URL and the server.")
    return Check("Postgres", Health.OK, f"{version}, from DATABASE_URL")


def _external_broker(config: Config) -> Check:
    try:
        with redis.Redis.from_url(config.redis_url, socket_timeout=5) as client:
            info = client.info("server")
    except (redis.RedisError, ValueError) as error:
        return Check("Redis", Health.WRONG, str(error), "Check REDIS_URL and the server.")
    return Check("Redis", Health.OK, f"{info['redis_version']}, from REDIS_URL")


def _schema(config: Config) -> Check:
    try:
        revision = schema.current_revision(config)
        if schema.is_current(config):
            return Check("Schema", Health.OK, f"current ({revision})")
    except Exception as error:  # whatever the database answers belongs into the report
        reason = str(error).strip().splitlines()[0]
        return Check("Schema", Health.WRONG, reason, "Check DATABASE_URL and its roles.")
    detail = f"at {revision or 'nothing'}, not current"
    return Check("Schema", Health.WRONG, detail, f"Run `{command('migrate')}`.")


def _open_networks(config: Config) -> Check:
    networks = ", ".join(map(str, config.webhook_allowed_networks))
    remedy = "Unset WEBHOOK_ALLOWED_NETWORKS unless everybody with a workspace may call in there."
    return Check("Webhooks", Health.WARNING, f"may reach the private networks {networks}", remedy)


def _artifact_store(config: Config) -> Check:
    try:
        storage_from_url(config).check_writable()
    except AppError as error:
        remedy = "Check STORAGE_URL, the free space and the permissions."
        return Check("Artifact store", Health.WRONG, error.message, remedy)
    return Check("Artifact store", Health.OK, config.storage_url)


def _newest_files(config: Config) -> Check:
    """Whether the files of the newest renders are where their records say."""
    database, storage = Database(config), storage_from_url(config)
    try:
        with database.system_scope() as session:
            newest = missing_files.look_at_newest(session, storage, count=NEWEST_COUNT)
    except StorageError as error:
        remedy = "Check STORAGE_URL and that the access key may read there."
        return Check("Newest files", Health.WRONG, error.message, remedy)
    finally:
        database.dispose()
    if not newest.keys:
        detail = f"{newest.looked_at} looked at, all there" if newest.looked_at else "none yet"
        return Check("Newest files", Health.OK, detail)
    detail = (
        f"{newest.variant_count} of the {newest.looked_at} newest renders lack files in "
        f"{config.storage_url}, {min(newest.keys)} among them"
    )
    remedy = (
        "Put the files back from a copy, or set STORAGE_URL to where they are. Failing that, the "
        "export page of the batch says what is gone and prices rendering it again."
    )
    return Check("Newest files", Health.WRONG, detail, remedy)
