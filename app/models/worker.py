"""What render workers have in hand, as they say themselves once a second."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, String, Uuid, func
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import Base, WorkspaceScoped, state_type
from app.models.render_job import JobPurpose


class WorkPhase(StrEnum):
    """What counts for a batch first stands first: one worker may load while another renders."""

    RENDERING = "rendering"  # denoising steps
    CHECKING = "checking"  # some of the group are rendered once more, and compared
    FINISHING = "finishing"  # decoding, encoding, storing
    LOADING = "loading"  # the model is not in memory yet


class WorkerProgress(WorkspaceScoped, Base):
    """How far one run of one worker is with the jobs of a batch that it holds.

    One row per worker and not one per job: however many jobs it holds, a second of progress is
    one update. Rows of lost workers grow old and are not counted.
    """

    __tablename__ = "worker_progress"

    worker: Mapped[str] = mapped_column(String(120), primary_key=True)
    batch_id: Mapped[UUID] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), index=True)
    purpose: Mapped[JobPurpose] = mapped_column(state_type(JobPurpose, "purpose"))
    lease_token: Mapped[int] = mapped_column(BigInteger)
    # Jobs that the worker holds still, and with how many of them it began.
    job_count: Mapped[int]
    group_count: Mapped[int]
    phase: Mapped[WorkPhase] = mapped_column(state_type(WorkPhase, "phase"))
    # Jobs that the engine works on, or just did: those that may have ended a worker that is lost.
    in_hand: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid), server_default="{}")
    # Denoising steps of these jobs; a step that several of them share counts for each.
    steps_done: Mapped[int]
    steps_planned: Mapped[int]
    # Seconds that the group is likely to take after its last step; null as long as nobody can tell.
    rest_s: Mapped[float | None]
    steps_done_at: Mapped[datetime | None]
    # When the lease was first reported.
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
