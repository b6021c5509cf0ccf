"""The declarative base, column types and mixins that all tables share."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import DateTime, Enum, ForeignKey, MetaData, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from uuid_utils.compat import uuid7

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it from the class
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[Any]: JSONB,
        list[str]: JSONB,
        dict[str, str]: JSONB,
        dict[str, int]: JSONB,
    }


def new_id() -> UUID:
    """A time-ordered identifier (UUID version 7, RFC 9562): rows made together lie together."""
    return uuid7()


def state_type(enum: type[StrEnum], name: str) -> Enum:
    """A text column that takes the values of `enum` alone, checked by the database."""
    return Enum(
        enum,
        name=name,
        native_enum=False,
        create_constraint=True,
        length=24,
        values_callable=lambda members: [member.value for member in members],
    )


class Identified:
    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)


class Timestamped:
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class WorkspaceScoped:
    """Rows that belong to one workspace; row-level security filters them by this column."""

    workspace_id: Mapped[UUID] = mapped_column(ForeignKey("workspaces.id", ondelete="CASCADE"))
