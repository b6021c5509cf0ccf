"""Events about batches and reviews: what they say, and the ones that are found by looking."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, and_, exists, func, select
from sqlalchemy.orm import Session

from app.db import config_of
from app.models import (
    FINAL_STATES,
    Batch,
    BatchCounter,
    BatchState,
    JobPurpose,
    JobState,
    RenderJob,
    Review,
    ReviewState,
    WebhookEvent,
    WebhookEventType,
    Workspace,
)
from app.services.counters import count_jobs
from app.services.outbox import emit, is_wanted

PROGRESS_PERCENTS: Final = (25, 50, 75)
_LIVE_STATES = (BatchState.EXPANDING, BatchState.RUNNING, BatchState.PAUSED)
_DECIDED = (ReviewState.APPROVED, ReviewState.REJECTED)


def emit_batch(
    session: Session,
    batch_id: UUID,
    event_type: WebhookEventType,
    *,
    once_key: str | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    """Tell of a batch as it stands in this transaction: ids, state, counts, spend, links."""
    session.flush()
    batch = session.execute(select(Batch.__table__).where(Batch.id == batch_id)).one()
    counts = count_jobs(session, batch_id)
    currency = session.scalar(select(Workspace.currency).where(Workspace.id == batch.workspace_id))
    data = {
        "batch_id": str(batch_id),
        "campaign_id": str(batch.campaign_id),
        "name": batch.name,
        "state": BatchState(batch.state).value,
        "counts": {
            "total": batch.variant_count,
            "done": sum(counts.by_state.get(state, 0) for state in FINAL_STATES),
            **{state.value: counts.by_state.get(state, 0) for state in sorted(FINAL_STATES)},
        },
        "cost_micros": counts.cost_micros,
        "currency": currency,
        "launched_at": _text(batch.launched_at),
        "completed_at": _text(batch.completed_at),
        "passthrough": batch.spec.get("passthrough", {}),
        "links": {"dashboard": batch_link(session, batch_id)},
    }
    emit(session, batch.workspace_id, event_type, data | (more or {}), once_key=once_key)


def batch_link(session: Session, batch_id: UUID) -> str:
    return f"{config_of(session).base_url}/batches/{batch_id}"


def announce_progress(session: Session) -> int:
    """Tell of batches that have passed a quarter, the half or three quarters; returns how many.

    Counted in the rolled-up counters alone. Of several marks passed at once the highest is told.
    """
    done = func.sum(BatchCounter.count).label("done")
    rows = session.execute(
        select(Batch.id, Batch.workspace_id, Batch.variant_count, done)
        .join(BatchCounter, BatchCounter.batch_id == Batch.id)
        .where(
            Batch.completed_at.is_(None),
            Batch.state.in_(_LIVE_STATES),
            BatchCounter.purpose == JobPurpose.FINAL,
            BatchCounter.state.in_(FINAL_STATES),
            is_wanted(WebhookEventType.BATCH_PROGRESSED, Batch.workspace_id),
        )
        .group_by(Batch.id)
    ).all()
    told = 0
    for row in rows:
        passed = [mark for mark in PROGRESS_PERCENTS if row.done * 100 >= mark * row.variant_count]
        once_key = f"progress {row.id} {passed[-1] if passed else 0}"
        if passed and not _is_told(session, row.workspace_id, once_key):
            more = {"progress_percent": passed[-1]}
            event_type = WebhookEventType.BATCH_PROGRESSED
            emit_batch(session, row.id, event_type, once_key=once_key, more=more)
            told += 1
    return told


def is_reviewed(session: Session, batch_id: UUID) -> bool:
    """Whether the batch is complete and each of its finished variants approved or rejected."""
    finished = and_(
        RenderJob.batch_id == batch_id,
        RenderJob.purpose == JobPurpose.FINAL,
        RenderJob.state == JobState.SUCCEEDED,
    )
    decided = exists().where(Review.variant_id == RenderJob.variant_id, Review.state.in_(_DECIDED))
    return bool(
        session.scalar(
            select(
                and_(
                    exists().where(Batch.id == batch_id, Batch.state == BatchState.COMPLETED),
                    exists().where(finished),
                    ~exists().where(finished, ~decided),
                )
            )
        )
    )


def emit_reviewed(session: Session, batch_id: UUID) -> None:
    """Tell that a batch is reviewed, with what was decided."""
    decisions = session.execute(
        select(Review.state, func.count().label("number"))
        .join(RenderJob, RenderJob.variant_id == Review.variant_id)
        .where(*_final_results(batch_id))
        .group_by(Review.state)
    )
    numbers = {row.state: row.number for row in decisions}
    reviews = {state.value: numbers.get(state, 0) for state in _DECIDED}
    emit_batch(session, batch_id, WebhookEventType.REVIEW_COMPLETED, more={"reviews": reviews})


def _final_results(batch_id: UUID) -> tuple[ColumnElement[bool], ...]:
    return (
        RenderJob.batch_id == batch_id,
        RenderJob.purpose == JobPurpose.FINAL,
        RenderJob.state == JobState.SUCCEEDED,
    )


def _is_told(session: Session, workspace_id: UUID, once_key: str) -> bool:
    told = exists().where(
        WebhookEvent.workspace_id == workspace_id, WebhookEvent.once_key == once_key
    )
    return bool(session.scalar(select(told)))


def _text(moment: Any) -> str | None:
    return moment.isoformat() if moment is not None else None
