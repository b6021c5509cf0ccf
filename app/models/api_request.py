"""Answers that the API gave under an idempotency key, to give again when it is asked again."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identified, Timestamped, WorkspaceScoped


class IdempotencyKey(Identified, Timestamped, WorkspaceScoped, Base):
    """One answered request; written by the transaction that had the effect."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        UniqueConstraint("workspace_id", "key"),
        Index("ix_idempotency_keys_workspace_id_expires_at", "workspace_id", "expires_at"),
    )

    key: Mapped[str] = mapped_column(String(255))
    # SHA-256 over method, path and body: the same key for anything else is refused.
    fingerprint: Mapped[str] = mapped_column(String(64))
    status: Mapped[int]
    # Sealed (services.idempotency): an answer may hold a signing secret.
    body_sealed: Mapped[bytes] = mapped_column(LargeBinary)
    expires_at: Mapped[datetime]
