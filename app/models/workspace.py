"""Tenants and the people and keys that act in them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Index, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from app.access import Role
from app.models.base import Base, Identified, Timestamped, WorkspaceScoped, state_type

DEFAULT_MAX_VARIANTS = 10_000
# Micros (millionths of the currency) per work unit: one reference forward of the model.
DEFAULT_RATE_MICROS = 100


class Workspace(Identified, Timestamped, Base):
    __tablename__ = "workspaces"

    name: Mapped[str] = mapped_column(String(120))
    slug: Mapped[str] = mapped_column(String(120), unique=True)
    time_zone: Mapped[str] = mapped_column(String(64), default="UTC", server_default="UTC")
    currency: Mapped[str] = mapped_column(String(3), default="USD", server_default="USD")
    rate_micros_per_unit: Mapped[int] = mapped_column(
        BigInteger, default=DEFAULT_RATE_MICROS, server_default=str(DEFAULT_RATE_MICROS)
    )
    max_variants_per_batch: Mapped[int] = mapped_column(
        default=DEFAULT_MAX_VARIANTS, server_default=str(DEFAULT_MAX_VARIANTS)
    )


class User(Identified, Timestamped, Base):
    __tablename__ = "users"
    __table_args__ = (Index("uq_users_email_lower", text("lower(email)"), unique=True),)

    email: Mapped[str] = mapped_column(String(320))
    name: Mapped[str] = mapped_column(String(120))
    # Loaded on use alone: adloom_app may not read this column.
    password_hash: Mapped[str] = mapped_column(String(255), deferred=True)
    # Part of the session cookie: raising it signs the person out everywhere.
    session_version: Mapped[int] = mapped_column(default=1, server_default="1")


class Membership(Identified, Timestamped, WorkspaceScoped, Base):
    __tablename__ = "memberships"
    __table_args__ = (UniqueConstraint("workspace_id", "user_id"),)

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    role: Mapped[Role] = mapped_column(state_type(Role, "role"))
    user: Mapped[User] = relationship(lazy="raise")


class ApiKey(Identified, Timestamped, WorkspaceScoped, Base):
    """A key is shown once; only its SHA-256 is kept, found by its visible prefix."""

    __tablename__ = "api_keys"

    name: Mapped[str] = mapped_column(String(120))
    prefix: Mapped[str] = mapped_column(String(16), unique=True)
    key_sha256: Mapped[str] = mapped_column(String(64))
    role: Mapped[Role] = mapped_column(state_type(Role, "role"))
    scopes: Mapped[list[str]]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
