"""The most that a batch may spend: kept at every claim, and what happens when it is reached."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from app.errors import InvalidInput
from app.models import (
    Batch,
    BatchState,
    JobPurpose,
    JobState,
    PauseReason,
    RenderJob,
    WebhookEventType,
)
from app.queues import Queue, ring_after_commit
from app.services.claimed import AnyRow
from app.services.counters import count_jobs
from app.services.outbox_batches import emit_batch
from app.services.progress import binding_quote

# Far beyond any quote; the column holds no more.
MAX_CAP_MICROS = 10**15
MOVING_STATES = (BatchState.EXPANDING, BatchState.RUNNING)


def check_cap(cap_micros: int | None) -> int | None:
    """The limit; InvalidInput unless it is an amount above nothing."""
    if cap_micros is not None and not 0 < cap_micros <= MAX_CAP_MICROS:
        raise InvalidInput(
            "Give the most that the batch may spend as an amount above 0, or none at all.",
            field="spend_cap_micros",
        )
    return cap_micros


def change_cap(session: Session, batch: Batch, cap_micros: int | None) -> None:
    """Give a batch, locked by the caller, another limit; it goes on if a lower one held it up."""
    before, batch.spend_cap_micros = batch.spend_cap_micros, check_cap(cap_micros)
    is_raised = cap_micros is None or before is None or cap_micros > before
    if batch.pause_reason is PauseReason.BUDGET and is_raised:
        go_on(batch)
        ring_after_commit(session, Queue.CONTROL)
    session.flush()


def go_on(batch: Batch) -> None:
    """Take a batch up again where it stood still, be it the expansion or the renders."""
    is_expanded = batch.expanded_at is not None
    batch.state = BatchState.RUNNING if is_expanded else BatchState.EXPANDING
    batch.pause_reason = None


def keep_within_cap(session: Session, rows: Sequence[AnyRow]) -> Sequence[AnyRow]:
    """Of jobs about to be claimed those that the batch can still pay for, in their order.

    What is in flight counts with its full price, so the limit is never passed. When not even the
    first can be paid for and nothing is in flight that might turn out cheaper, the batch pauses.
    """
    finals = [row for row in rows if row.purpose is JobPurpose.FINAL]
    if not finals or finals[0].spend_cap_micros is None:
        return rows
    batch_id, cap_micros = finals[0].batch_id, finals[0].spend_cap_micros
    _wait_for_others(session, batch_id)
    rate = binding_quote(session, batch_id).rate_micros_per_unit
    in_flight = _units_in_flight(session, batch_id) * rate
    left = cap_micros - count_jobs(session, batch_id).cost_micros - in_flight
    affordable: list[AnyRow] = []
    for row in rows:
        # The charge is rounded down, too.
        left -= int(row.shared_units * rate)
        if left < 0:
            break
        affordable.append(row)
    if not affordable and not in_flight:
        _pause(session, batch_id, cap_micros)
    return affordable


def _wait_for_others(session: Session, batch_id: UUID) -> None:
    """Let one claim at a time spend the rest of a limit; held to the end of the transaction."""
    session.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"),
        {"key": f"budget {batch_id}"},
    )


def _units_in_flight(session: Session, batch_id: UUID) -> float:
    return (
        session.scalar(
            select(func.sum(RenderJob.shared_units)).where(
                RenderJob.batch_id == batch_id,
                RenderJob.purpose == JobPurpose.FINAL,
                RenderJob.state == JobState.RUNNING,
            )
        )
        or 0.0
    )


def _pause(session: Session, batch_id: UUID, cap_micros: int) -> None:
    # Best effort: a batch that its expansion has locked is paused by the next claim.
    free = (
        select(Batch.id)
        .where(Batch.id == batch_id, Batch.state.in_(MOVING_STATES))
        .with_for_update(key_share=True, skip_locked=True)
        .scalar_subquery()
    )
    paused = session.scalar(
        update(Batch)
        .where(Batch.id == free)
        .values(state=BatchState.PAUSED, pause_reason=PauseReason.BUDGET)
        .returning(Batch.id),
        execution_options={"synchronize_session": False},
    )
    if paused is not None:
        emit_batch(
            session,
            batch_id,
            WebhookEventType.BUDGET_REACHED,
            more={"spend_cap_micros": cap_micros},
        )
