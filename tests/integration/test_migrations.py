"""The migrations make exactly the schema that the models describe, and take it away again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from app.config import APP_ROLE, Config
from app.errors import ServiceUnavailable
from app.models import Base
from app.paths import MIGRATIONS
from app.services import schema

# What stands in the schema: columns, constraints with their text, indexes with conditions.
CATALOGUE = {
    "columns": """
        SELECT table_name, column_name, data_type, character_maximum_length, is_nullable,
            column_default, is_identity
        FROM information_schema.columns WHERE table_schema = 'public'
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    """,
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "sequences": "SELECT sequencename, data_type FROM pg_sequences WHERE schemaname = 'public'",
}


@contextmanager
def connected(config: Config) -> Iterator[Connection]:
    engine = create_engine(config.database_url, poolclass=NullPool)
    with engine.begin() as connection:
        yield connection


def catalogue(connection: Connection) -> dict[str, set[tuple[object, ...]]]:
    found = {}
    for kind, query in CATALOGUE.items():
        rows = {tuple(row) for row in connection.execute(text(query))}
        found[kind] = {row for row in rows if "alembic_version" not in str(row[0])}
    return found


def test_there_is_one_head() -> None:
    assert len(ScriptDirectory(str(MIGRATIONS)).get_heads()) == 1


def test_the_schema_goes_up_down_and_up_again(empty_config: Config) -> None:
    assert schema.current_revision(empty_config) is None
    schema.upgrade(empty_config)
    assert schema.is_current(empty_config)
    with connected(empty_config) as connection:
        first = catalogue(connection)

    schema.downgrade(empty_config, "base")
    assert schema.current_revision(empty_config) is None
    with connected(empty_config) as connection:
        assert not any(catalogue(connection).values())

    schema.upgrade(empty_config)
    with connected(empty_config) as connection:
        assert catalogue(connection) == first


def test_each_step_down_can_be_taken_up_again(empty_config: Config) -> None:
    schema.upgrade(empty_config)
    for script in list(ScriptDirectory(str(MIGRATIONS)).walk_revisions()):
        schema.downgrade(empty_config, script.down_revision or "base")
        schema.upgrade(empty_config, script.revision)
        schema.downgrade(empty_config, script.down_revision or "base")
    schema.upgrade(empty_config)
    assert schema.is_current(empty_config)


def test_the_models_equal_the_schema(config: Config, empty_config: Config) -> None:
    with connected(config) as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, Base.metadata) == []
        migrated = catalogue(connection)
    # The comparison above looks at neither check constraints nor the conditions of indexes.
    with connected(empty_config) as connection:
        Base.metadata.create_all(connection)
        assert catalogue(connection) == migrated


def test_a_second_upgrade_changes_nothing(config: Config) -> None:
    with connected(config) as connection:
        before = catalogue(connection)
    schema.upgrade(config)
    with connected(config) as connection:
        assert catalogue(connection) == before


def test_a_role_takes_the_password_of_its_url(config: Config) -> None:
    url = make_url(config.database_app_url).set(password="a new secret").render_as_string(False)
    schema.upgrade(replace(config, database_app_url=url))
    with connected(config) as connection:
        stored = connection.scalar(
            text("SELECT rolpassword FROM pg_authid WHERE rolname = :role"), {"role": APP_ROLE}
        )
    assert stored is not None
    assert stored.startswith("SCRAM-SHA-256$")


def test_an_unreachable_database_is_named_as_such(config: Config) -> None:
    nowhere = make_url(config.database_url).set(query={"host": "/nowhere"}).render_as_string(False)
    with pytest.raises(ServiceUnavailable, match="cannot be reached") as caught:
        schema.current_revision(replace(config, database_url=nowhere))
    assert isinstance(caught.value.__cause__, OperationalError)
