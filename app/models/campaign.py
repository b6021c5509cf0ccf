"""What a marketer writes: campaigns, versioned prompt templates, parameters, uploads."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identified, Timestamped, WorkspaceScoped, state_type


class ParameterKind(StrEnum):
    """What a parameter means; the planner learns how early each kind matters."""

    GEOGRAPHY = "geography"
    AUDIENCE = "audience"
    BACKDROP = "backdrop"
    TEXT = "text"
    CHOICE = "choice"
    ASSET = "asset"
    SIZE = "size"
    DURATION = "duration"
    LANGUAGE = "language"


# These change the shape of the render and need not stand in the prompt.
SETTING_KINDS = frozenset({ParameterKind.SIZE, ParameterKind.DURATION, ParameterKind.LANGUAGE})


class Campaign(Identified, Timestamped, WorkspaceScoped, Base):
    __tablename__ = "campaigns"
    __table_args__ = (
        Index("uq_campaigns_hidden", "workspace_id", unique=True, postgresql_where="is_hidden"),
    )

    name: Mapped[str] = mapped_column(String(200))
    brief: Mapped[str] = mapped_column(Text, default="", server_default="")
    # Render settings that new batches start from (the fields of engine.types.RenderSettings).
    settings: Mapped[dict[str, Any]]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    updated_at: Mapped[datetime | None]
    archived_at: Mapped[datetime | None]
    # The workspace's one campaign of single generations asked for by API; no page lists it.
    is_hidden: Mapped[bool] = mapped_column(default=False, server_default=false())


class PromptTemplate(Identified, Timestamped, WorkspaceScoped, Base):
    """One version of a campaign's prompt; a batch pins the version that it was made from."""

    __tablename__ = "prompt_templates"
    __table_args__ = (UniqueConstraint("campaign_id", "version"),)

    campaign_id: Mapped[UUID] = mapped_column(ForeignKey("campaigns.id", ondelete="CASCADE"))
    version: Mapped[int]
    text: Mapped[str] = mapped_column(Text)
    negative_text: Mapped[str] = mapped_column(Text, default="", server_default="")
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))


class Parameter(Identified, Timestamped, WorkspaceScoped, Base):
    """A placeholder of the campaign with its kind and the values typed or picked so far."""

    __tablename__ = "parameters"
    __table_args__ = (UniqueConstraint("campaign_id", "name"),)

    campaign_id: Mapped[UUID] = mapped_column(ForeignKey("campaigns.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(64))
    kind: Mapped[ParameterKind] = mapped_column(state_type(ParameterKind, "kind"))
    values: Mapped[list[str]]
    # Of a geography: the places that its values name beyond doubt, by value (services.places).
    places: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    position: Mapped[int]


class Upload(Identified, Timestamped, WorkspaceScoped, Base):
    """A table exactly as it was received, what was found in it, and its mended rows beside it."""

    __tablename__ = "uploads"

    campaign_id: Mapped[UUID] = mapped_column(
        ForeignKey("campaigns.id", ondelete="CASCADE"), index=True
    )
    filename: Mapped[str] = mapped_column(String(255))
    storage_key: Mapped[str] = mapped_column(String(255))
    sha256: Mapped[str] = mapped_column(String(64))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    row_count: Mapped[int]
    # Column names in file order, and how the file is to be read (encoding, delimiter).
    header: Mapped[list[str]]
    dialect: Mapped[dict[str, str]]
    findings: Mapped[list[Any]]
    # A required question waits for its answer; until then there are no rows to work from.
    is_open: Mapped[bool] = mapped_column(default=False, server_default=false())
    questions: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")
    answers: Mapped[dict[str, str]] = mapped_column(default=dict, server_default="{}")
    # The rows after every repair, and the list of repairs.
    table_key: Mapped[str | None] = mapped_column(String(255))
    repairs_key: Mapped[str | None] = mapped_column(String(255))
    repair_count: Mapped[int] = mapped_column(default=0, server_default="0")
    # Against the table that was used before, by `row_id`.
    changes: Mapped[dict[str, Any] | None]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
