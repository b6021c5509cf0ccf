"""COPY, the way to write many rows; Postgres offers it to `adloom_system` alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
import psycopg.sql
from sqlalchemy.orm import Session


def copy_rows(
    session: Session, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """COPY rows within the session's transaction. Values of jsonb columns come as JSON text."""
    connection = session.connection().connection.driver_connection
    assert isinstance(connection, psycopg.Connection)
    statement = psycopg.sql.SQL("COPY {} ({}) FROM STDIN").format(
        psycopg.sql.Identifier(table),
        psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, columns)),
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
