"""What launches batches by the clock: schedules, and what became of each time they fired."""

from __future__ import annotations

from datetime import datetime, time
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    DateTime,
    ForeignKey,
    Index,
    String,
    Text,
    Time,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identified, Timestamped, WorkspaceScoped, state_type


class ScheduleMode(StrEnum):
    """What is launched."""

    REPEAT = "repeat"  # the whole batch, each time
    ROTATION = "rotation"  # each time the next variants that were not used yet


class MissedPolicy(StrEnum):
    """What to do with times at which nothing could be launched."""

    SKIP = "skip"
    RUN_ONCE = "run_once"  # once for all of them, as soon as possible


class OverlapPolicy(StrEnum):
    """What to do when the batch before has not ended."""

    SKIP = "skip"
    QUEUE = "queue"  # launch when it has


class DeadlinePolicy(StrEnum):
    """What to do when the deadline comes first."""

    RUN_ON = "run_on"
    PAUSE = "pause"  # and go on with the rest at the next time


class FireOutcome(StrEnum):
    LAUNCHED = "launched"
    RESUMED = "resumed"  # the rest that the deadline left before goes on
    QUEUED = "queued"  # waits for the end of the batch before
    SKIPPED = "skipped"
    MISSED = "missed"
    FAILED = "failed"  # no batch could be made; the reason says why


class FireReason(StrEnum):
    """Why nothing was launched, or why something was stopped."""

    OVERLAP = "overlap"
    BUDGET = "budget"
    AWAY = "away"  # nothing ran that could have launched it in time
    WINDOW_OVER = "window_over"  # the deadline went by first
    EXHAUSTED = "exhausted"  # every variant has been used
    BATCH_GONE = "batch_gone"  # the batch was launched or cancelled by hand
    ARCHIVED = "archived"
    REFUSED = "refused"  # the batch cannot be made as it is
    ERROR = "error"
    STOPPED = "stopped"  # paused at the deadline
    LATE = "late"  # runs on behind the deadline


class Schedule(Identified, Timestamped, WorkspaceScoped, Base):
    """Launches a batch, or batches like it, at local times in a zone."""

    __tablename__ = "schedules"
    __table_args__ = (
        Index(
            "ix_schedules_due",
            "next_fire_at",
            postgresql_where=(
                "next_fire_at IS NOT NULL AND paused_at IS NULL AND deleted_at IS NULL"
            ),
        ),
        Index("ix_schedules_workspace_id", "workspace_id"),
        Index("ix_schedules_batch_id", "batch_id"),
    )

    campaign_id: Mapped[UUID] = mapped_column(
        ForeignKey("campaigns.id", ondelete="CASCADE"), index=True
    )
    # The batch that it was made from: launched itself while it waits, and copied after that.
    batch_id: Mapped[UUID] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(200))
    mode: Mapped[ScheduleMode] = mapped_column(state_type(ScheduleMode, "mode"))
    # Of a rotation: how many combinations each time, and how many were used so far.
    rotation_size: Mapped[int | None]
    rotation_position: Mapped[int] = mapped_column(default=0, server_default="0")
    # A seed of its own for each batch: with equal ones, finished variants would be reused.
    has_fresh_seeds: Mapped[bool]

    # services.fire_times.Timing
    timing: Mapped[dict[str, Any]]
    time_zone: Mapped[str] = mapped_column(String(64))
    deadline: Mapped[time | None] = mapped_column(Time)
    deadline_policy: Mapped[DeadlinePolicy] = mapped_column(
        state_type(DeadlinePolicy, "deadline_policy")
    )
    missed_policy: Mapped[MissedPolicy] = mapped_column(state_type(MissedPolicy, "missed_policy"))
    overlap_policy: Mapped[OverlapPolicy] = mapped_column(
        state_type(OverlapPolicy, "overlap_policy")
    )
    budget_micros: Mapped[int | None] = mapped_column(BigInteger)

    # Whoever moves this on has fired the schedule; null once no occurrence is left.
    next_fire_at: Mapped[datetime | None]
    # The same occurrence on the clock of the zone: a wall-clock time has no offset.
    next_occurrence: Mapped[datetime | None] = mapped_column(DateTime(timezone=False))
    fire_count: Mapped[int] = mapped_column(default=0, server_default="0")

    paused_at: Mapped[datetime | None]
    pause_note: Mapped[str] = mapped_column(String(500), default="", server_default="")
    deleted_at: Mapped[datetime | None]
    updated_at: Mapped[datetime | None]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))


class ScheduleFire(Identified, Timestamped, WorkspaceScoped, Base):
    """One time that a schedule fired, or should have, with what came of it."""

    __tablename__ = "schedule_fires"
    __table_args__ = (
        # The second guard, besides `next_fire_at`, against firing an occurrence twice.
        UniqueConstraint("schedule_id", "time_zone", "occurrence"),
        Index("ix_schedule_fires_schedule_id_id", "schedule_id", "id"),
        Index("ix_schedule_fires_batch_id", "batch_id"),
        Index("ix_schedule_fires_queued", "schedule_id", postgresql_where="outcome = 'queued'"),
        Index(
            "ix_schedule_fires_deadline_at",
            "deadline_at",
            postgresql_where="deadline_at IS NOT NULL AND settled_at IS NULL",
        ),
    )

    schedule_id: Mapped[UUID] = mapped_column(ForeignKey("schedules.id", ondelete="CASCADE"))
    # Null where a person asked for it ("run now").
    occurrence: Mapped[datetime | None] = mapped_column(DateTime(timezone=False))
    time_zone: Mapped[str] = mapped_column(String(64))
    due_at: Mapped[datetime]
    # Later occurrences that had passed as well and are answered by this one.
    missed_count: Mapped[int] = mapped_column(default=0, server_default="0")
    outcome: Mapped[FireOutcome] = mapped_column(state_type(FireOutcome, "outcome"))
    reason_code: Mapped[FireReason | None] = mapped_column(state_type(FireReason, "reason_code"))
    reason: Mapped[str] = mapped_column(Text, default="", server_default="")
    batch_id: Mapped[UUID | None] = mapped_column(ForeignKey("batches.id", ondelete="SET NULL"))
    deadline_at: Mapped[datetime | None]
    # When the deadline had been dealt with: kept, run over, or the batch paused.
    settled_at: Mapped[datetime | None]
