"""What a schedule launches when it fires: its batch, a copy of it, or the next part of it."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access import Actor
from app.models import (
    Batch,
    BatchState,
    Campaign,
    FireReason,
    Schedule,
    ScheduleFire,
    ScheduleMode,
)
from app.services import batches, counters
from app.services.fire_times import night_of
from app.services.progress import binding_quote
from app.services.specs import MAX_TAKES, BatchSpec
from app.services.variants import variant_count
from engine import registry

SEEDS = registry.MAX_SEED - MAX_TAKES + 1


class FireRefusedError(Exception):
    """Nothing is launched this time, for a reason that is no fault."""

    def __init__(self, code: FireReason, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def launch(session: Session, actor: Actor, schedule: Schedule, *, now: datetime) -> Batch:
    """Make and launch what is due; raises FireRefusedError, or AppError where no batch can be made.

    Call it in a savepoint: a batch that turns out too expensive is made before its price is known.
    """
    if session.get_one(Campaign, schedule.campaign_id).archived_at is not None:
        raise FireRefusedError(FireReason.ARCHIVED, "The campaign is in the archive.")
    source = session.get_one(Batch, schedule.batch_id)
    left = _budget_left(session, schedule, now)
    if schedule.mode is ScheduleMode.ROTATION:
        batch = _make_next_part(session, actor, schedule, source, left)
    elif source.state is BatchState.PREVIEWING:
        batch = source
    elif schedule.timing["kind"] == "once":
        raise FireRefusedError(
            FireReason.BATCH_GONE,
            f"The batch is {source.state.value} already: somebody launched or cancelled it.",
        )
    else:
        batch = _make_copy(session, actor, schedule, source, BatchSpec.model_validate(source.spec))
    cost = _cost(session, batch)
    if left is not None and cost > left:
        raise FireRefusedError(FireReason.BUDGET, _over_budget(session, schedule, batch, left))
    return batches.launch_batch(session, actor, batch.id)


def count_combinations(spec: BatchSpec) -> int:
    """How many combinations a rotation has to go through."""
    return variant_count(spec) // spec.takes


def _make_copy(
    session: Session, actor: Actor, schedule: Schedule, source: Batch, spec: BatchSpec
) -> Batch:
    if schedule.has_fresh_seeds:
        seed = (spec.seed + schedule.fire_count * spec.takes) % SEEDS
        spec = spec.model_copy(update={"seed": seed})
    return batches.create_batch(
        session,
        actor,
        campaign_id=schedule.campaign_id,
        spec=spec,
        upload_id=source.upload_id,
        name=f"{schedule.name} {schedule.fire_count}",
    )


def _make_next_part(
    session: Session, actor: Actor, schedule: Schedule, source: Batch, left: int | None
) -> Batch:
    """The next combinations that were not used yet: as many as wanted, left, and affordable."""
    spec = BatchSpec.model_validate(source.spec)
    position, size = schedule.rotation_position, schedule.rotation_size or 1
    size = min(size, count_combinations(spec) - position)
    if size <= 0:
        raise FireRefusedError(FireReason.EXHAUSTED, "Every variant has been used.")
    while True:
        part = spec.model_copy(update={"first_combination": position, "combination_limit": size})
        savepoint = session.begin_nested()
        batch = _make_copy(session, actor, schedule, source, part)
        cost = _cost(session, batch)
        if left is None or cost <= left:
            break
        words = _over_budget(session, schedule, batch, left)
        savepoint.rollback()
        # Sharing makes the price of a part less than in proportion, so this may take some rounds.
        size = min(size - 1, size * left // cost)
        if size <= 0:
            raise FireRefusedError(FireReason.BUDGET, words)
    savepoint.commit()
    schedule.rotation_position = position + size
    return batch


def _budget_left(session: Session, schedule: Schedule, now: datetime) -> int | None:
    """Micros that may still be spent in the night that goes on; None without a budget."""
    if schedule.budget_micros is None:
        return None
    begin, end = night_of(now, ZoneInfo(schedule.time_zone))
    launched = session.scalars(
        select(Batch)
        .join(ScheduleFire, ScheduleFire.batch_id == Batch.id)
        .where(
            ScheduleFire.schedule_id == schedule.id,
            Batch.launched_at >= begin,
            Batch.launched_at < end,
        )
        .distinct()
    )
    return max(0, schedule.budget_micros - sum(_spent(session, batch) for batch in launched))


def _spent(session: Session, batch: Batch) -> int:
    """What a batch cost, or may still come to cost."""
    if batch.completed_at is not None:
        return counters.count_jobs(session, batch.id).cost_micros
    return _cost(session, batch)


def _cost(session: Session, batch: Batch) -> int:
    return binding_quote(session, batch.id).cost_micros


def _over_budget(session: Session, schedule: Schedule, batch: Batch, left: int) -> str:
    quote = binding_quote(session, batch.id)
    cost, rest, budget = (
        f"{micros / 1_000_000:,.4g} {quote.currency}"
        for micros in (quote.cost_micros, left, schedule.budget_micros or 0)
    )
    return (
        f"{quote.variant_count:,} variants cost up to {cost}, and {rest} of the night's budget of"
        f" {budget} is left."
    )
