"""What becomes of an occurrence: launched once, or not at all for a reason that is recorded."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time, timedelta
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from app.access import Actor
from app.db import Database
from app.models import (
    Batch,
    BatchState,
    Campaign,
    DeadlinePolicy,
    FireOutcome,
    FireReason,
    MissedPolicy,
    OverlapPolicy,
    Schedule,
    ScheduleFire,
)
from app.services import (
    batches,
    campaigns,
    schedule_firing,
    schedule_upkeep,
    schedules,
)
from app.services.fire_times import CronTiming, OnceTiming
from tests.clocks import CHANGES, walk_minutes
from tests.integration.batch_tools import COUNT, call, state_of
from tests.integration.schedule_tools import DAY, EVENING, Shelf, end_batches, launched
from workers import scheduling

pytestmark = pytest.mark.usefixtures("weights")
Create = Callable[..., Batch]
HOUR = timedelta(hours=1)


def test_the_first_fire_launches_the_batch_itself_and_the_next_one_a_copy(
    create: Create, shelf: Shelf, database: Database
) -> None:
    batch = create()
    schedule_id = shelf.make(batch.id)
    assert shelf.fire(schedule_id, now=EVENING - HOUR) is None
    first = shelf.fire(schedule_id, now=EVENING)
    assert first is not None
    assert (first.outcome, first.batch_id) == (FireOutcome.LAUNCHED, batch.id)
    assert state_of(database, batch.id) is BatchState.EXPANDING
    assert shelf.fire(schedule_id, now=EVENING) is None
    end_batches(database)

    second = shelf.fire(schedule_id, now=EVENING + DAY)
    assert second is not None
    assert second.occurrence == datetime(2026, 6, 3, 22)
    assert second.batch_id not in (None, batch.id)
    with database.system_scope() as session:
        copy = session.get_one(Batch, second.batch_id)
    assert (copy.name, copy.variant_count) == ("Nightly 2", COUNT)
    # Equal seeds would find every variant rendered already.
    assert copy.spec["seed"] != batch.spec["seed"]
    assert shelf.get(schedule_id).next_fire_at == EVENING + 2 * DAY


def test_once_launches_its_batch_and_has_no_next_time(
    create: Create, shelf: Shelf, database: Database
) -> None:
    batch = create()
    later = datetime.now(UTC).replace(tzinfo=None) + DAY
    timing = OnceTiming(at=later)
    schedule_id = shelf.make(batch.id, timing=timing, time_zone="UTC", first=None)
    assert shelf.fire(schedule_id, now=datetime.now(UTC)) is None
    due = timing.at.replace(tzinfo=UTC)
    assert shelf.fire(schedule_id, now=due) is not None
    assert state_of(database, batch.id) is BatchState.EXPANDING
    assert shelf.get(schedule_id).next_fire_at is None
    assert shelf.fire(schedule_id, now=due + DAY) is None


def test_a_batch_that_was_launched_by_hand_is_not_launched_again(
    create: Create, shelf: Shelf, database: Database, actor: Actor
) -> None:
    batch = create()
    later = datetime.now(UTC).replace(tzinfo=None) + DAY
    schedule_id = shelf.make(batch.id, timing=OnceTiming(at=later), time_zone="UTC")
    call(database, actor, batches.launch_batch, batch.id)
    shelf.fire(schedule_id, now=EVENING)
    assert shelf.outcomes(schedule_id) == [(FireOutcome.SKIPPED, FireReason.BATCH_GONE)]
    assert len(launched(database)) == 1


def test_a_crash_before_the_commit_loses_nothing_and_doubles_nothing(
    create: Create, shelf: Shelf, database: Database
) -> None:
    batch = create()
    schedule_id = shelf.make(batch.id)
    with pytest.raises(KeyboardInterrupt), database.system_scope() as session:
        assert schedule_firing.fire(session, shelf.due(schedule_id), now=EVENING) is not None
        raise KeyboardInterrupt
    assert shelf.fires(schedule_id) == []
    assert state_of(database, batch.id) is BatchState.PREVIEWING
    assert shelf.get(schedule_id).next_fire_at == EVENING
    shelf.fire(schedule_id, now=EVENING)
    assert shelf.outcomes(schedule_id) == [(FireOutcome.LAUNCHED, None)]


def test_four_schedulers_fire_each_occurrence_once_over_days_of_clock_changes(
    create: Create, shelf: Shelf, database: Database
) -> None:
    timing = CronTiming(expression="30 0-3 * * *")
    expected: dict[UUID, list[datetime]] = {}
    clocks: dict[UUID, datetime] = {}
    for name, days in sorted(CHANGES.items()):
        for day in days:
            noon = datetime.combine(day, time(12), tzinfo=UTC)
            start, end = noon - timedelta(hours=30), noon + timedelta(hours=14)
            found = [
                (local, at)
                for local, at in walk_minutes(name, noon)
                if start < at <= end and local.minute == 30 and local.hour <= 3
            ]
            # Of those that a gap swallows together, the first is fired.
            firsts = [
                local
                for number, (local, at) in enumerate(found)
                if number == 0 or found[number - 1][1] != at
            ]
            schedule_id = shelf.make(create().id, timing=timing, time_zone=name)
            with database.system_scope() as session:
                schedule = session.get_one(Schedule, schedule_id)
                schedule.next_occurrence, schedule.next_fire_at = found[0]
            expected[schedule_id], clocks[schedule_id] = firsts, start
    won: list[UUID] = []
    barrier = Barrier(4)

    def run_steps() -> None:
        for step in range(1, 89):
            barrier.wait()
            with database.system_scope() as session:
                rows = session.execute(select(Schedule.id, Schedule.next_fire_at)).all()
            for id_, at in rows:
                now = clocks[id_] + step * timedelta(minutes=30)
                if at is None or at > now:
                    continue
                due = schedule_firing.DueSchedule(schedule_id=id_, due_at=at)
                with database.system_scope() as session:
                    if schedule_firing.fire(session, due, now=now) is not None:
                        won.append(id_)

    def run_scheduler() -> None:
        try:
            run_steps()
        except BaseException:
            # The others would wait for this one for ever.
            barrier.abort()
            raise

    with ThreadPoolExecutor(4) as schedulers:
        ended = [schedulers.submit(run_scheduler) for _ in range(4)]
    assert [future.exception() for future in ended] == [None] * 4
    found_by_schedule = {
        schedule_id: [item.occurrence for item in shelf.fires(schedule_id)]
        for schedule_id in expected
    }
    assert found_by_schedule == expected
    assert len(won) == sum(map(len, expected.values()))
    # The first of each launched its batch, which has not ended.
    assert len(launched(database)) == len(expected)


def test_what_was_missed_is_made_up_for_once_or_left_out(
    create: Create, shelf: Shelf, database: Database
) -> None:
    once = shelf.make(create().id)
    never = shelf.make(create().id, missed_policy=MissedPolicy.SKIP)
    back = EVENING + 3 * DAY + HOUR
    for schedule_id in (once, never):
        shelf.fire(schedule_id, now=back)
        assert shelf.get(schedule_id).next_fire_at == EVENING + 4 * DAY
        assert [item.missed_count for item in shelf.fires(schedule_id)] == [3]
        assert shelf.fire(schedule_id, now=back) is None
    assert shelf.outcomes(once) == [(FireOutcome.LAUNCHED, FireReason.AWAY)]
    assert shelf.outcomes(never) == [(FireOutcome.MISSED, FireReason.AWAY)]
    assert len(launched(database)) == 1


def test_what_was_missed_is_not_made_up_for_behind_its_deadline(
    create: Create, shelf: Shelf
) -> None:
    schedule_id = shelf.make(create().id, deadline=time(6))
    shelf.fire(schedule_id, now=EVENING + 8 * HOUR)
    assert shelf.outcomes(schedule_id) == [(FireOutcome.MISSED, FireReason.WINDOW_OVER)]
    # Two nights later it comes back in time for the last one.
    shelf.fire(schedule_id, now=EVENING + 2 * DAY + 7 * HOUR)
    last = shelf.fires(schedule_id)[-1]
    assert (last.outcome, last.deadline_at) == (
        FireOutcome.LAUNCHED,
        EVENING + 2 * DAY + 8 * HOUR,
    )


def test_while_the_batch_before_goes_on_the_next_one_is_left_out(
    create: Create, shelf: Shelf, database: Database
) -> None:
    schedule_id = shelf.make(create().id)
    shelf.fire(schedule_id, now=EVENING)
    shelf.fire(schedule_id, now=EVENING + DAY)
    end_batches(database)
    shelf.fire(schedule_id, now=EVENING + 2 * DAY)
    assert shelf.outcomes(schedule_id) == [
        (FireOutcome.LAUNCHED, None),
        (FireOutcome.SKIPPED, FireReason.OVERLAP),
        (FireOutcome.LAUNCHED, None),
    ]
    assert "had not ended" in shelf.fires(schedule_id)[1].reason


def test_a_queued_fire_is_launched_when_the_batch_before_has_ended_and_only_one_waits(
    create: Create, shelf: Shelf, database: Database
) -> None:
    schedule_id = shelf.make(create().id, overlap_policy=OverlapPolicy.QUEUE)
    for day in range(3):
        shelf.fire(schedule_id, now=EVENING + day * DAY)
    assert shelf.outcomes(schedule_id)[1:] == [
        (FireOutcome.QUEUED, FireReason.OVERLAP),
        (FireOutcome.SKIPPED, FireReason.OVERLAP),
    ]
    queued = shelf.fires(schedule_id)[1].id

    def start(now: datetime = EVENING + 2 * DAY) -> bool:
        with database.system_scope() as session:
            assert schedule_upkeep.list_queued(session) == [queued]
            return schedule_upkeep.start_queued(session, queued, now=now)

    assert not start()
    end_batches(database)
    assert start()
    fire = shelf.fires(schedule_id)[1]
    assert (fire.outcome, fire.reason_code, fire.reason) == (FireOutcome.LAUNCHED, None, "")
    assert [batch.state for batch in launched(database)] == [
        BatchState.COMPLETED,
        BatchState.EXPANDING,
    ]
    with database.system_scope() as session:
        assert schedule_upkeep.list_queued(session) == []


def test_a_queued_fire_ends_with_its_deadline(
    create: Create, shelf: Shelf, database: Database
) -> None:
    schedule_id = shelf.make(
        create().id, overlap_policy=OverlapPolicy.QUEUE, deadline=time(6), deadline_policy="run_on"
    )
    shelf.fire(schedule_id, now=EVENING)
    shelf.fire(schedule_id, now=EVENING + DAY)
    with database.system_scope() as session:
        (queued,) = schedule_upkeep.list_queued(session)
        assert not schedule_upkeep.start_queued(session, queued, now=EVENING + DAY + 9 * HOUR)
    assert shelf.outcomes(schedule_id)[1] == (FireOutcome.MISSED, FireReason.WINDOW_OVER)


def test_a_batch_is_paused_at_its_deadline_and_the_rest_goes_on_in_the_next_night(
    create: Create, shelf: Shelf, database: Database
) -> None:
    batch = create()
    schedule_id = shelf.make(batch.id, deadline=time(6), deadline_policy=DeadlinePolicy.PAUSE)
    shelf.fire(schedule_id, now=EVENING)

    def settle(now: datetime) -> int:
        with database.system_scope() as session:
            return schedule_upkeep.settle_deadlines(session, now=now)

    assert settle(EVENING + 7 * HOUR) == 0
    assert settle(EVENING + 8 * HOUR) == 1
    assert settle(EVENING + 9 * HOUR) == 0
    assert state_of(database, batch.id) is BatchState.PAUSED
    stopped = shelf.fires(schedule_id)[0]
    assert stopped.reason == f"Paused at the deadline: 0 of {COUNT} were done."

    resumed = shelf.fire(schedule_id, now=EVENING + DAY)
    assert resumed is not None
    assert (resumed.outcome, resumed.batch_id) == (FireOutcome.RESUMED, batch.id)
    assert resumed.deadline_at == EVENING + DAY + 8 * HOUR
    assert state_of(database, batch.id) is BatchState.EXPANDING
    end_batches(database)
    assert settle(EVENING + DAY + 8 * HOUR) == 1
    assert shelf.fires(schedule_id)[1].reason_code is None
    assert state_of(database, batch.id) is BatchState.COMPLETED


def test_a_batch_that_may_run_on_is_only_said_to_be_late(
    create: Create, shelf: Shelf, database: Database
) -> None:
    batch = create()
    schedule_id = shelf.make(batch.id, deadline=time(6))
    shelf.fire(schedule_id, now=EVENING)
    with database.system_scope() as session:
        schedule_upkeep.settle_deadlines(session, now=EVENING + 8 * HOUR)
    assert shelf.outcomes(schedule_id) == [(FireOutcome.LAUNCHED, FireReason.LATE)]
    assert state_of(database, batch.id) is BatchState.EXPANDING


def test_a_batch_that_a_person_paused_is_left_alone(
    create: Create, shelf: Shelf, database: Database, actor: Actor
) -> None:
    batch = create()
    schedule_id = shelf.make(batch.id, deadline=time(6), deadline_policy=DeadlinePolicy.PAUSE)
    shelf.fire(schedule_id, now=EVENING)
    call(database, actor, batches.pause_batch, batch.id)
    with database.system_scope() as session:
        schedule_upkeep.settle_deadlines(session, now=EVENING + 8 * HOUR)
    shelf.fire(schedule_id, now=EVENING + DAY)
    assert shelf.outcomes(schedule_id)[1] == (FireOutcome.SKIPPED, FireReason.OVERLAP)
    assert state_of(database, batch.id) is BatchState.PAUSED


def test_a_batch_that_cannot_be_made_is_recorded_with_its_reason(
    create: Create, shelf: Shelf, database: Database, actor: Actor, campaign: Campaign
) -> None:
    schedule_id = shelf.make(create().id)
    shelf.fire(schedule_id, now=EVENING)
    end_batches(database)
    with database.workspace_scope(actor) as session:
        campaigns.save_prompt_template(
            session, actor, campaign.id, text="a sneaker in {{ weather }}"
        )
    shelf.fire(schedule_id, now=EVENING + DAY)
    last = shelf.fires(schedule_id)[-1]
    assert (last.outcome, last.reason_code) == (FireOutcome.FAILED, FireReason.REFUSED)
    assert "weather" in last.reason
    assert shelf.get(schedule_id).next_fire_at == EVENING + 2 * DAY


def test_an_archived_campaign_launches_nothing(
    create: Create, shelf: Shelf, database: Database, actor: Actor, campaign: Campaign
) -> None:
    schedule_id = shelf.make(create().id)
    call(database, actor, campaigns.archive_campaign, campaign.id)
    shelf.fire(schedule_id, now=EVENING)
    assert shelf.outcomes(schedule_id) == [(FireOutcome.SKIPPED, FireReason.ARCHIVED)]


def test_a_paused_or_deleted_schedule_does_not_fire(
    create: Create, shelf: Shelf, database: Database, actor: Actor
) -> None:
    for verb in (schedules.pause_schedule, schedules.delete_schedule):
        schedule_id = shelf.make(create().id)
        due = shelf.due(schedule_id)
        call(database, actor, verb, schedule_id)
        assert shelf.fire(schedule_id, now=EVENING) is None
        with database.system_scope() as session:
            assert schedule_firing.fire(session, due, now=EVENING) is None
    assert launched(database) == []


def test_an_occurrence_that_was_fired_is_not_fired_again_after_a_change(
    create: Create, shelf: Shelf, database: Database
) -> None:
    schedule_id = shelf.make(create().id)
    shelf.fire(schedule_id, now=EVENING)
    with database.system_scope() as session:
        shelf.set_next(session.get_one(Schedule, schedule_id), EVENING)
    assert shelf.fire(schedule_id, now=EVENING) is None
    assert len(shelf.fires(schedule_id)) == 1
    assert shelf.get(schedule_id).next_fire_at == EVENING + DAY


def test_run_now_launches_besides_the_times_of_the_schedule(
    create: Create, shelf: Shelf, database: Database, actor: Actor
) -> None:
    schedule_id = shelf.make(create().id)
    now = EVENING - 3 * HOUR
    for _ in range(2):
        with database.workspace_scope(actor) as session:
            schedule_firing.run_now(session, actor, schedule_id, now=now)
    assert shelf.outcomes(schedule_id) == [
        (FireOutcome.LAUNCHED, None),
        (FireOutcome.SKIPPED, FireReason.OVERLAP),
    ]
    assert [item.occurrence for item in shelf.fires(schedule_id)] == [None, None]
    assert shelf.get(schedule_id).next_fire_at == EVENING


def test_the_control_loop_fires_what_is_due_by_the_clock_of_the_database(
    create: Create, shelf: Shelf, database: Database
) -> None:
    batch = create()
    recent = datetime.now(UTC) - timedelta(minutes=1)
    schedule_id = shelf.make(batch.id, first=recent)
    assert scheduling.run_schedules(database)
    assert not scheduling.run_schedules(database)
    assert shelf.outcomes(schedule_id) == [(FireOutcome.LAUNCHED, None)]
    following = shelf.get(schedule_id).next_fire_at
    assert following is not None
    assert following > datetime.now(UTC)


def test_a_schedule_that_breaks_down_is_recorded_and_goes_on(
    create: Create, shelf: Shelf, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule_id = shelf.make(create().id, first=datetime.now(UTC) - timedelta(minutes=1))

    def break_down(*args: Any, **options: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(schedule_firing, "perform", break_down)
    assert not scheduling.run_schedules(database)
    assert shelf.outcomes(schedule_id) == [(FireOutcome.FAILED, FireReason.ERROR)]
    assert not scheduling.run_schedules(database)


def test_fires_belong_to_their_workspace(create: Create, shelf: Shelf, database: Database) -> None:
    schedule_id = shelf.make(create().id)
    shelf.fire(schedule_id, now=EVENING)
    with database.system_scope() as session:
        found = session.scalars(select(ScheduleFire)).all()
    assert {item.workspace_id for item in found} == {shelf.actor.workspace_id}
