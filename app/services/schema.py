"""The version of the database schema: bring it up, take it down, ask for it."""

from __future__ import annotations

import psycopg.sql
from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from app.config import APP_ROLE, SYSTEM_ROLE, Config
from app.errors import ServiceUnavailable
from app.paths import MIGRATIONS


def upgrade(config: Config, revision: str = "head") -> None:
    """Bring the schema to a revision, and the passwords of the roles to those in the URLs."""
    with _connect(config) as connection:
        command.upgrade(_alembic(connection), revision)
        for role, url in (
            (APP_ROLE, config.database_app_url),
            (SYSTEM_ROLE, config.database_system_url),
        ):
            _set_password(connection, role, url)
        connection.commit()


def downgrade(config: Config, revision: str) -> None:
    """Take the schema back to a revision; "base" removes all tables and their rows."""
    with _connect(config) as connection:
        command.downgrade(_alembic(connection), revision)
        connection.commit()


def current_revision(config: Config) -> str | None:
    """The revision of the database, or None before the first migration."""
    with _connect(config) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head_revision() -> str | None:
    """The newest revision that this version of Adloom brings."""
    return ScriptDirectory(str(MIGRATIONS)).get_current_head()


def is_current(config: Config) -> bool:
    return current_revision(config) == head_revision()


def _alembic(connection: Connection) -> AlembicConfig:
    settings = AlembicConfig()
    settings.set_main_option("script_location", str(MIGRATIONS))
    settings.attributes["connection"] = connection
    return settings


def _connect(config: Config) -> Connection:
    # NullPool: closing the connection ends it, nothing is left to dispose of.
    engine = create_engine(config.database_url, poolclass=NullPool)
    try:
        return engine.connect()
    except OperationalError as error:
        reason = str(error.orig).strip().splitlines()[0]
        raise ServiceUnavailable(f"Postgres cannot be reached: {reason}") from error


def _set_password(connection: Connection, role: str, url: str) -> None:
    """Give the role the password that its URL carries; a URL without one changes nothing."""
    parts = make_url(url)
    if parts.username != role or not parts.password:
        return
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    # Hashed here, so that the password itself reaches neither the wire nor a server log.
    secret = driver.pgconn.encrypt_password(str(parts.password).encode(), role.encode())
    driver.execute(
        psycopg.sql.SQL("ALTER ROLE {} PASSWORD {}").format(
            psycopg.sql.Identifier(role), psycopg.sql.Literal(secret.decode())
        )
    )
