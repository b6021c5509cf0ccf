"""What a schedule may spend in a night, and rotations through variants that were not used yet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

import pytest
from sqlalchemy import func, select

from app.db import Database
from app.models import (
    Batch,
    BatchState,
    FireOutcome,
    FireReason,
    PromptTemplate,
    ScheduleMode,
    Variant,
)
from app.services import expanding, schedule_firing
from app.services.progress import binding_quote
from tests.integration.batch_tools import COUNT, make_spec, state_of
from tests.integration.schedule_tools import DAY, EVENING, Shelf, end_batches, launched

pytestmark = pytest.mark.usefixtures("weights")
Create = Callable[..., Batch]


def cost_of(database: Database, batch_id: UUID) -> int:
    with database.system_scope() as session:
        return binding_quote(session, batch_id).cost_micros


def test_a_night_costs_no_more_than_its_budget(
    create: Create, shelf: Shelf, database: Database
) -> None:
    batch = create()
    price = cost_of(database, batch.id)
    poor = shelf.make(batch.id, budget_micros=price - 1)
    shelf.fire(poor, now=EVENING)
    assert shelf.outcomes(poor) == [(FireOutcome.SKIPPED, FireReason.BUDGET)]
    assert f"{COUNT} variants cost up to" in shelf.fires(poor)[0].reason
    assert state_of(database, batch.id) is BatchState.PREVIEWING

    rich = shelf.make(batch.id, budget_micros=price)
    # Launched batches are found by the real time, at which they are launched.
    now = datetime.now(UTC)
    for _ in range(2):
        with database.workspace_scope(shelf.actor) as session:
            schedule_firing.run_now(session, shelf.actor, rich, now=now)
        end_batches(database)
    assert shelf.outcomes(rich) == [
        (FireOutcome.LAUNCHED, None),
        (FireOutcome.SKIPPED, FireReason.BUDGET),
    ]
    # Nothing of the batch that was too expensive stays.
    with database.system_scope() as session:
        assert session.scalar(select(func.count(Batch.id))) == 1


def rendered_values(database: Database) -> list[dict[str, str]]:
    """The values of every variant of batches that were launched, batch by batch."""
    with database.system_scope() as session:
        rows = session.scalars(
            select(Variant)
            .join(Batch)
            .where(Batch.launched_at.is_not(None))
            .order_by(Batch.launched_at, Variant.ordinal)
        )
        return [row.values for row in rows]


def test_a_rotation_takes_the_next_variants_until_all_were_used(
    create: Create, shelf: Shelf, database: Database
) -> None:
    batch = create()
    schedule_id = shelf.make(batch.id, mode=ScheduleMode.ROTATION, rotation_size=5)
    for day in range(4):
        shelf.fire(schedule_id, now=EVENING + day * DAY)
        end_batches(database)
    assert [item.variant_count for item in launched(database)] == [5, 5, 2]
    assert shelf.outcomes(schedule_id)[3] == (FireOutcome.SKIPPED, FireReason.EXHAUSTED)
    values = rendered_values(database)
    with database.system_scope() as session:
        drafts = expanding.open_source(
            session,
            make_spec(),
            prompt_template_id=session.scalars(select(PromptTemplate.id)).one(),
            upload_id=None,
        ).drafts()
        assert values == [dict(draft.values) for draft in drafts]
    schedule = shelf.get(schedule_id)
    assert (schedule.pause_note, schedule.paused_at is None) == (
        "Every variant has been used.",
        False,
    )
    # The batch that the values come from is not launched itself.
    assert state_of(database, batch.id) is BatchState.PREVIEWING


def test_a_rotation_takes_fewer_variants_where_the_budget_ends(
    create: Create, shelf: Shelf, database: Database
) -> None:
    batch = create()
    budget = cost_of(database, batch.id) // 2
    schedule_id = shelf.make(
        batch.id, mode=ScheduleMode.ROTATION, rotation_size=10, budget_micros=budget
    )
    shelf.fire(schedule_id, now=EVENING)
    (part,) = launched(database)
    assert 0 < part.variant_count < 10
    assert cost_of(database, part.id) <= budget
    assert shelf.get(schedule_id).rotation_position == part.variant_count
    with database.system_scope() as session:
        assert session.scalar(select(func.count(Batch.id))) == 2


def test_a_rotation_of_takes_gives_each_combination_all_of_them(
    create: Create, shelf: Shelf, database: Database
) -> None:
    schedule_id = shelf.make(create(takes=2).id, mode=ScheduleMode.ROTATION, rotation_size=5)
    shelf.fire(schedule_id, now=EVENING)
    end_batches(database)
    shelf.fire(schedule_id, now=EVENING + DAY)
    end_batches(database)
    assert [item.variant_count for item in launched(database)] == [10, 10]
    values = rendered_values(database)
    assert values[:5] == values[5:10]
    assert not [each for each in values[:5] if each in values[10:]]
