"""Runs the migrations on a connection that is handed in, as the owner of the tables."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine, text

from app.models import Base

# Two processes that migrate at the same time: the second waits, then finds nothing to do.
MIGRATION_LOCK = 4_153_501_234


def migrate(connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
    # A migration that would see only part of the rows fails instead of changing none of them.
    connection.execute(text("SET LOCAL row_security = off"))
    context.configure(connection=connection, target_metadata=Base.metadata)
    with context.begin_transaction():
        context.run_migrations()


def main() -> None:
    """`adloom migrate` hands its connection in; to write a migration, name the database:

    alembic -x database_url=postgresql+psycopg://… revision --autogenerate -m "…"
    """
    handed_in = context.config.attributes.get("connection")
    if handed_in is not None:
        migrate(handed_in)
        return
    url = context.get_x_argument(as_dictionary=True).get("database_url")
    if url is None:
        raise SystemExit("Use `adloom migrate`, or name the database: alembic -x database_url=…")
    engine = create_engine(url)
    with engine.begin() as connection:
        migrate(connection)
    engine.dispose()


main()
