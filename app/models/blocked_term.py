"""Terms that a workspace never renders."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identified, Timestamped, WorkspaceScoped


class BlockedTerm(Identified, Timestamped, WorkspaceScoped, Base):
    """One term; `key` is its spelling without case, accents and kinds of blank."""

    __tablename__ = "blocked_terms"
    __table_args__ = (UniqueConstraint("workspace_id", "key"),)

    term: Mapped[str] = mapped_column(String(200))
    key: Mapped[str] = mapped_column(String(1000))
    # Why, in the workspace's own words; may be empty.
    reason: Mapped[str] = mapped_column(String(200), server_default="")
    position: Mapped[int]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
