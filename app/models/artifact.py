"""What came out: artifacts, their review, and what they used."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identified, Timestamped, WorkspaceScoped, state_type


class ReviewState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"


class Artifact(Identified, Timestamped, WorkspaceScoped, Base):
    """A finished render: the video or image, its poster and its preview, under content keys."""

    __tablename__ = "artifacts"
    __table_args__ = (
        Index("ix_artifacts_workspace_id_variant_key", "workspace_id", "variant_key"),
    )

    variant_key: Mapped[str] = mapped_column(String(64))
    media_type: Mapped[str] = mapped_column(String(64))
    storage_key: Mapped[str] = mapped_column(String(255))
    poster_key: Mapped[str] = mapped_column(String(255))
    preview_key: Mapped[str] = mapped_column(String(255))
    sha256: Mapped[str] = mapped_column(String(64))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    width: Mapped[int]
    height: Mapped[int]
    num_frames: Mapped[int]
    fps: Mapped[float]
    profile: Mapped[str] = mapped_column(String(24))
    # How it was made: steps computed and saved, seconds by stage, engine and model version.
    provenance: Mapped[dict[str, Any]]


class Review(Timestamped, WorkspaceScoped, Base):
    __tablename__ = "reviews"

    variant_id: Mapped[UUID] = mapped_column(
        ForeignKey("variants.id", ondelete="CASCADE"), primary_key=True
    )
    state: Mapped[ReviewState] = mapped_column(state_type(ReviewState, "state"))
    reason: Mapped[str] = mapped_column(Text, default="", server_default="")
    reviewed_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    # Of a reviewer without an account.
    share_link_id: Mapped[UUID | None] = mapped_column(
        ForeignKey("share_links.id", ondelete="SET NULL")
    )
    updated_at: Mapped[datetime]


class Usage(Identified, Timestamped, WorkspaceScoped, Base):
    """What one finished job is charged; reused output costs nothing and says so."""

    __tablename__ = "usage"

    batch_id: Mapped[UUID] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), index=True)
    job_id: Mapped[UUID] = mapped_column(
        ForeignKey("render_jobs.id", ondelete="CASCADE"), unique=True
    )
    units: Mapped[float]
    cost_micros: Mapped[int] = mapped_column(BigInteger)
    render_s: Mapped[float]
    is_reused: Mapped[bool]
