"""Links that let people without an account look at one batch, and review it where that is meant."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identified, Timestamped, WorkspaceScoped


class ShareLink(Identified, Timestamped, WorkspaceScoped, Base):
    """The link itself is shown once; only the SHA-256 of its token is kept."""

    __tablename__ = "share_links"

    batch_id: Mapped[UUID] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), index=True)
    token_sha256: Mapped[str] = mapped_column(String(64), unique=True)
    # Whom it was made for; their reviews are shown under it.
    name: Mapped[str] = mapped_column(String(120))
    can_review: Mapped[bool]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
