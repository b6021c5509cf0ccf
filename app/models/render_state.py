"""Where the renders of a variant that were stopped between two steps go on from."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Timestamped, WorkspaceScoped


class RenderState(Timestamped, WorkspaceScoped, Base):
    """A stored file that holds a state on the variant's way; variants of one group share it."""

    __tablename__ = "render_states"

    variant_id: Mapped[UUID] = mapped_column(
        ForeignKey("variants.id", ondelete="CASCADE"), primary_key=True
    )
    storage_key: Mapped[str] = mapped_column(String(255), primary_key=True, index=True)
    # The furthest denoising step that the file reached for one of its variants.
    step: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[datetime]
