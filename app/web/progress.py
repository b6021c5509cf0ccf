"""The live part of a batch page: counts by state, spend, pace, failures, what may be done."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from app.access import Actor
from app.models import Batch, BatchState, JobState
from app.services import batches
from app.web.formatting import duration

# In the order of the bar; states without a colour of their own share one.
SEGMENTS = (
    (JobState.SUCCEEDED, "succeeded"),
    (JobState.FAILED, "failed"),
    (JobState.QUARANTINED, "failed"),
    (JobState.CANCELLED, "cancelled"),
    (JobState.RUNNING, "running"),
    (JobState.RETRYABLE, "retryable"),
)
CHIPS = (
    JobState.SUCCEEDED,
    JobState.RUNNING,
    JobState.RETRYABLE,
    JobState.QUEUED,
    JobState.SCHEDULED,
    JobState.FAILED,
    JobState.QUARANTINED,
    JobState.CANCELLED,
)
LIVE_STATES = frozenset({BatchState.EXPANDING, BatchState.RUNNING, BatchState.PAUSED})
ACTIONS: dict[BatchState, tuple[str, ...]] = {
    BatchState.EXPANDING: ("pause", "cancel"),
    BatchState.RUNNING: ("pause", "cancel"),
    BatchState.PAUSED: ("resume", "cancel"),
}


def progress_context(session: Session, actor: Actor, batch: Batch) -> dict[str, Any]:
    progress = batches.get_progress(session, actor, batch.id)
    counts = progress.counts
    failed = counts.get(JobState.FAILED, 0) + counts.get(JobState.QUARANTINED, 0)
    actions = [*ACTIONS.get(batch.state, ())]
    if failed and batch.state in (*LIVE_STATES, BatchState.COMPLETED):
        actions.append("retry")
    took_s = _took_s(batch)
    finished = counts.get(JobState.SUCCEEDED, 0)
    failures = batches.list_failures(session, actor, batch.id) if failed else []
    return {
        "progress": progress,
        "is_live": batch.state in LIVE_STATES,
        "segments": [(css, counts.get(state, 0)) for state, css in SEGMENTS],
        "chips": [(state, counts[state]) for state in CHIPS if counts.get(state)],
        "actions": actions,
        "failures": failures,
        "currency": progress.quote.currency,
        "spent_micros": progress.cost_micros,
        "quoted_micros": progress.quote.cost_micros,
        "pace": _pace(progress.rate_per_s),
        "took_s": took_s,
        "per_variant_s": duration_per(took_s, finished),
        "progress_etag": _etag(batch, progress, failures),
    }


def _pace(rate_per_s: float | None) -> str:
    if not rate_per_s:
        return ""
    if rate_per_s >= 1:
        return f"{rate_per_s:.1f} per second"
    return f"one every {duration(1 / rate_per_s)}"


def _took_s(batch: Batch) -> float | None:
    if batch.launched_at is None:
        return None
    end = batch.completed_at or datetime.now(UTC)
    return (end - batch.launched_at).total_seconds()


def duration_per(took_s: float | None, finished: int) -> str:
    return f"{took_s / finished:.1f} s" if took_s and finished else ""


def _etag(batch: Batch, *shown: object) -> str:
    text = f"{batch.state} {batch.failure} {shown!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]
