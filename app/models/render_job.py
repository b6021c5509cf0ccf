"""The work for one variant: its state machine, its lease, its attempts."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Index, Sequence, String, Text, UniqueConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, Identified, Timestamped, WorkspaceScoped, state_type


class JobPurpose(StrEnum):
    PREVIEW = "preview"
    FINAL = "final"


class JobState(StrEnum):
    SCHEDULED = "scheduled"  # waits for its render window
    QUEUED = "queued"  # may be claimed
    RUNNING = "running"  # leased by a worker
    RETRYABLE = "retryable"  # failed or lost once; may be claimed again from scheduled_at on
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the render said no; trying again would not help
    CANCELLED = "cancelled"
    QUARANTINED = "quarantined"  # started too often without an end


FINAL_STATES = frozenset(
    {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.QUARANTINED}
)
CLAIMABLE_STATES = frozenset({JobState.QUEUED, JobState.RETRYABLE})
LIVE_STATES = frozenset(JobState) - FINAL_STATES

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.SCHEDULED: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.QUEUED: frozenset(
        {JobState.RUNNING, JobState.SCHEDULED, JobState.SUCCEEDED, JobState.CANCELLED}
    ),
    JobState.RUNNING: frozenset(
        {
            JobState.SUCCEEDED,
            JobState.FAILED,
            JobState.RETRYABLE,
            JobState.QUEUED,  # handed back by a worker that shuts down
            JobState.CANCELLED,
            JobState.QUARANTINED,
        }
    ),
    JobState.RETRYABLE: frozenset(
        {JobState.RUNNING, JobState.SUCCEEDED, JobState.CANCELLED, JobState.QUARANTINED}
    ),
    JobState.SUCCEEDED: frozenset(),
    # A person may ask for another try.
    JobState.FAILED: frozenset({JobState.QUEUED}),
    JobState.QUARANTINED: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset(),
}

DEFAULT_MAX_STARTS = 3

_CLAIMABLE = "state IN ('queued', 'retryable')"

# One number per claim, never reused: a write that carries an old one changes nothing.
LEASE_TOKENS = Sequence("lease_tokens", metadata=Base.metadata, data_type=BigInteger)


class RenderJob(Identified, Timestamped, WorkspaceScoped, Base):
    __tablename__ = "render_jobs"
    __table_args__ = (
        UniqueConstraint("variant_id", "purpose"),
        # The claim probes each live batch for its first waiting job, and for a key it holds.
        Index(
            "ix_render_jobs_claimable",
            "batch_id",
            "priority",
            "scheduled_at",
            "group_key",
            postgresql_where=_CLAIMABLE,
        ),
        Index(
            "ix_render_jobs_claimable_affinity",
            "batch_id",
            "affinity_key",
            "scheduled_at",
            postgresql_where=_CLAIMABLE,
        ),
        # Previews are few, so their batches are found without looking at the others.
        Index(
            "ix_render_jobs_claimable_preview",
            "batch_id",
            postgresql_where=f"purpose = 'preview' AND {_CLAIMABLE}",
        ),
        Index("ix_render_jobs_scheduled", "scheduled_at", postgresql_where="state = 'scheduled'"),
        Index(
            "ix_render_jobs_group_live",
            "group_key",
            "plan_order",
            postgresql_where="state IN ('scheduled', 'queued', 'retryable', 'running')",
        ),
        Index("ix_render_jobs_leased", "lease_expires_at", postgresql_where="state = 'running'"),
        Index("ix_render_jobs_batch_id_state", "batch_id", "state"),
        # The pace of a batch is read off its last finished jobs.
        Index(
            "ix_render_jobs_batch_id_finished_at",
            "batch_id",
            "finished_at",
            postgresql_where="finished_at IS NOT NULL",
        ),
    )

    batch_id: Mapped[UUID] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"))
    variant_id: Mapped[UUID] = mapped_column(ForeignKey("variants.id", ondelete="CASCADE"))
    purpose: Mapped[JobPurpose] = mapped_column(state_type(JobPurpose, "purpose"))
    state: Mapped[JobState] = mapped_column(state_type(JobState, "state"))
    # Lower goes first: 0 preview, 10 normal.
    priority: Mapped[int] = mapped_column(default=10, server_default="10")
    scheduled_at: Mapped[datetime] = mapped_column(server_default=func.now())
    affinity_key: Mapped[str] = mapped_column(String(64))
    group_key: Mapped[str] = mapped_column(String(80))
    plan_order: Mapped[int]
    # After a crash of its group a job is claimed alone, so that one poison job cannot hide.
    is_single: Mapped[bool] = mapped_column(default=False, server_default="false")
    work_units: Mapped[float]
    shared_units: Mapped[float]
    # The planned way through the denoising tree: fork step by slot name, slots not named fork at 0.
    fork_steps: Mapped[dict[str, int]] = mapped_column(default=dict, server_default="{}")

    lease_token: Mapped[int | None] = mapped_column(BigInteger)
    lease_worker: Mapped[str | None] = mapped_column(String(120))
    lease_expires_at: Mapped[datetime | None]
    deadline_at: Mapped[datetime | None]
    start_count: Mapped[int] = mapped_column(default=0, server_default="0")
    max_starts: Mapped[int] = mapped_column(
        default=DEFAULT_MAX_STARTS, server_default=str(DEFAULT_MAX_STARTS)
    )

    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None] = mapped_column(Text)
    artifact_id: Mapped[UUID | None] = mapped_column(ForeignKey("artifacts.id"))
    finished_at: Mapped[datetime | None]


class Attempt(Identified, WorkspaceScoped, Base):
    """One claim of a job by a worker, with how it ended."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("job_id", "lease_token"),)

    job_id: Mapped[UUID] = mapped_column(ForeignKey("render_jobs.id", ondelete="CASCADE"))
    lease_token: Mapped[int] = mapped_column(BigInteger)
    number: Mapped[int]
    worker: Mapped[str] = mapped_column(String(120))
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    finished_at: Mapped[datetime | None]
    # The state that the job went to, or null while it runs.
    outcome: Mapped[str | None] = mapped_column(String(24))
    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None] = mapped_column(Text)
