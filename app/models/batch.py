"""One submission and what it expands into: batches, quotes, variants, progress counters."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identified, Timestamped, WorkspaceScoped, state_type


class ExpansionMode(StrEnum):
    CARTESIAN = "cartesian"  # every combination of the values
    ZIP = "zip"  # first with first, second with second; rows of an upload
    SAMPLED = "sampled"  # a seeded sample of the cartesian product


class BatchState(StrEnum):
    PREVIEWING = "previewing"  # exists, quoted, nothing launched; preview renders may run
    EXPANDING = "expanding"  # launched; variants and jobs are being written
    RUNNING = "running"  # every job exists
    PAUSED = "paused"  # nothing new is claimed
    COMPLETED = "completed"  # every job is final, some may have failed
    FAILED = "failed"  # expansion itself failed; nothing was rendered
    CANCELLED = "cancelled"


class PauseReason(StrEnum):
    """Why a batch stands still, unless a person paused it."""

    BUDGET = "budget"  # the next claim would spend more than it may


class Batch(Identified, Timestamped, WorkspaceScoped, Base):
    __tablename__ = "batches"
    __table_args__ = (
        # Batches that have not ended yet; the others are never looked at by background work.
        Index("ix_batches_live", "state", postgresql_where="completed_at IS NULL"),
        Index("ix_batches_campaign_id_created_at", "campaign_id", "created_at"),
    )

    campaign_id: Mapped[UUID] = mapped_column(ForeignKey("campaigns.id", ondelete="CASCADE"))
    prompt_template_id: Mapped[UUID] = mapped_column(ForeignKey("prompt_templates.id"))
    upload_id: Mapped[UUID | None] = mapped_column(ForeignKey("uploads.id"))
    name: Mapped[str] = mapped_column(String(200))
    state: Mapped[BatchState] = mapped_column(
        state_type(BatchState, "state"), default=BatchState.PREVIEWING
    )
    mode: Mapped[ExpansionMode] = mapped_column(state_type(ExpansionMode, "mode"))
    # The frozen inputs: parameter kinds and values, settings, seed, takes (services.batches.Spec).
    spec: Mapped[dict[str, Any]]
    variant_count: Mapped[int]
    # Ordinal of the next variant to write: expansion resumes here.
    expansion_cursor: Mapped[int] = mapped_column(default=0, server_default="0")
    # The byte of the upload's table where its row begins; 0: read from the start.
    expansion_offset: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    failure: Mapped[str | None] = mapped_column(Text)
    # The most that it may spend; null: its quote alone is the limit.
    spend_cap_micros: Mapped[int | None] = mapped_column(BigInteger)
    pause_reason: Mapped[PauseReason | None] = mapped_column(
        state_type(PauseReason, "pause_reason")
    )
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    launched_at: Mapped[datetime | None]
    expanded_at: Mapped[datetime | None]
    # When it ended, whatever the end was; a cancelled batch ends with its last live job.
    completed_at: Mapped[datetime | None]
    # When a worker last took work from it: the claim serves first what has waited longest.
    last_claimed_at: Mapped[datetime | None]


class Quote(Identified, Timestamped, WorkspaceScoped, Base):
    """The price before launch; a batch keeps every quote, the last one binds."""

    __tablename__ = "quotes"

    batch_id: Mapped[UUID] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), index=True)
    variant_count: Mapped[int]
    full_units: Mapped[float]
    shared_units: Mapped[float]
    rate_micros_per_unit: Mapped[int] = mapped_column(BigInteger)
    full_cost_micros: Mapped[int] = mapped_column(BigInteger)
    cost_micros: Mapped[int] = mapped_column(BigInteger)
    currency: Mapped[str] = mapped_column(String(3))
    estimated_s: Mapped[float | None]
    # Per parameter: what one more value costs, in clips; prices of the other profiles.
    details: Mapped[dict[str, Any]]


class Variant(Identified, Timestamped, WorkspaceScoped, Base):
    """One concrete set of parameter values, with everything that decides its pixels."""

    __tablename__ = "variants"
    __table_args__ = (
        UniqueConstraint("batch_id", "ordinal"),
        Index("ix_variants_workspace_id_variant_key", "workspace_id", "variant_key"),
        Index("ix_variants_draft_id", "draft_id", postgresql_where="draft_id IS NOT NULL"),
    )

    batch_id: Mapped[UUID] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
    ordinal: Mapped[int]
    values: Mapped[dict[str, Any]]
    # Columns of the upload that are not parameters: kept and handed back untouched.
    passthrough: Mapped[dict[str, Any]]
    row_id: Mapped[str | None] = mapped_column(String(200))
    prompt: Mapped[str] = mapped_column(Text)
    negative_prompt: Mapped[str] = mapped_column(Text)
    slots: Mapped[list[Any]]
    seed: Mapped[int] = mapped_column(BigInteger)
    settings: Mapped[dict[str, Any]]
    variant_key: Mapped[str] = mapped_column(String(64))
    # The draft that this one is the finished render of.
    draft_id: Mapped[UUID | None] = mapped_column(ForeignKey("variants.id", ondelete="SET NULL"))


class BatchCounter(WorkspaceScoped, Base):
    """Rolled-up counts and spend of a batch by job purpose and state."""

    __tablename__ = "batch_counters"

    batch_id: Mapped[UUID] = mapped_column(
        ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True
    )
    purpose: Mapped[str] = mapped_column(String(24), primary_key=True)
    state: Mapped[str] = mapped_column(String(24), primary_key=True)
    count: Mapped[int] = mapped_column(default=0)
    cost_micros: Mapped[int] = mapped_column(BigInteger, default=0)


class BatchDelta(WorkspaceScoped, Base):
    """A change of a counter, appended by the transaction that moved the jobs."""

    __tablename__ = "batch_deltas"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    batch_id: Mapped[UUID] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), index=True)
    purpose: Mapped[str] = mapped_column(String(24))
    state: Mapped[str] = mapped_column(String(24))
    count: Mapped[int]
    cost_micros: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
