"""What a lost worker means for a batch: work that stands still for a while, or waits once more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import config_of
from app.models import JobPurpose, JobState, RenderJob
from app.services.rescuing import WORKER_LOST

# A worker renews its leases three times before they run out; it has missed one by then.
SILENT_SHARE = 0.5
# More are not counted one by one for a line on a page.
MAX_COUNTED = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Setback:
    """Final renders of workers that fell silent, and those that are back in the queue.

    The silent ones go back within `back_in_s`, unless their workers are heard of again.
    """

    silent: int = 0
    back_in_s: float = 0.0
    returned: int = 0

    @property
    def has_any(self) -> bool:
        return bool(self.silent or self.returned)


def find_silent(session: Session, batch_id: UUID) -> Setback:
    """Running jobs whose worker has missed a heartbeat."""
    workers = config_of(session).workers
    quiet = func.now() + timedelta(seconds=workers.lease_s * SILENT_SHARE)
    left = func.extract("epoch", func.max(RenderJob.lease_expires_at) - func.now())
    row = session.execute(
        select(func.count().label("number"), left.label("seconds")).where(
            RenderJob.batch_id == batch_id,
            RenderJob.purpose == JobPurpose.FINAL,
            RenderJob.state == JobState.RUNNING,
            RenderJob.lease_expires_at < quiet,
        )
    ).one()
    # What has run out is looked for this often.
    back_in_s = max(0.0, float(row.seconds or 0.0)) + workers.reap_s
    return Setback(silent=row.number, back_in_s=back_in_s if row.number else 0.0)


def count_returned(session: Session, batch_id: UUID) -> int:
    """Jobs of lost workers that wait to be claimed again, MAX_COUNTED at most."""
    found = (
        select(RenderJob.id)
        .where(
            RenderJob.batch_id == batch_id,
            RenderJob.purpose == JobPurpose.FINAL,
            RenderJob.state == JobState.RETRYABLE,
            RenderJob.error_code == WORKER_LOST.error_code,
        )
        .limit(MAX_COUNTED)
        .subquery()
    )
    return session.scalar(select(func.count()).select_from(found)) or 0
