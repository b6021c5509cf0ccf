"""Where finished renders of drafts go on from."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identified, Timestamped, WorkspaceScoped


class DraftState(Identified, Timestamped, WorkspaceScoped, Base):
    """A stored file with the state where a draft ends; `variant_key` is the draft's."""

    __tablename__ = "draft_states"
    __table_args__ = (Index(None, "workspace_id", "variant_key"),)

    # Null when the draft was deleted: then the file goes, too.
    variant_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("variants.id", ondelete="SET NULL"), index=True
    )
    variant_key: Mapped[str] = mapped_column(String(64))
    storage_key: Mapped[str] = mapped_column(String(255), unique=True)
    step: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[datetime]
