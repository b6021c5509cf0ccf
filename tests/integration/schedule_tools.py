"""What the tests of schedules share: rules, schedules that are due, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import select

from app.access import Actor
from app.db import Database
from app.models import Batch, FireOutcome, FireReason, Schedule, ScheduleFire
from app.services import expanding, schedule_firing, schedules
from app.services.fire_times import Weekday, WeeklyTiming
from app.services.schedule_firing import DueSchedule
from app.services.schedule_rules import ScheduleRules
from tests.integration.batch_tools import finish

DAILY = WeeklyTiming(weekdays=tuple(Weekday), at=time(22))
# A Tuesday in Berlin, at 22:00 on the clock.
EVENING = datetime(2026, 6, 2, 20, tzinfo=UTC)
DAY = timedelta(days=1)


class Shelf:
    """Schedules of one workspace, fired by a clock that the test sets."""

    def __init__(self, database: Database, actor: Actor) -> None:
        self._database = database
        self.actor = actor

    def make(self, batch_id: UUID, *, first: datetime | None = EVENING, **changes: Any) -> UUID:
        """A schedule of a batch whose next time is `first`; None leaves it as it is."""
        rules = ScheduleRules(**{"timing": DAILY, "time_zone": "Europe/Berlin"} | changes)
        with self._database.workspace_scope(self.actor) as session:
            schedule = schedules.create_schedule(
                session, self.actor, batch_id=batch_id, name="Nightly", rules=rules
            )
            if first is not None:
                self.set_next(schedule, first)
        return schedule.id

    @staticmethod
    def set_next(schedule: Schedule, at: datetime) -> None:
        """Let the schedule be as if it had been made right before `at`."""
        zone = schedules.ZoneInfo(schedule.time_zone)
        schedule.next_fire_at = at
        schedule.next_occurrence = at.astimezone(zone).replace(tzinfo=None)

    def fire(self, schedule_id: UUID, *, now: datetime) -> ScheduleFire | None:
        """Fire it if it is due, as a control loop does."""
        with self._database.system_scope() as session:
            for due in schedule_firing.list_due(session, now=now):
                if due.schedule_id == schedule_id:
                    return schedule_firing.fire(session, due, now=now)
        return None

    def due(self, schedule_id: UUID) -> DueSchedule:
        at = self.get(schedule_id).next_fire_at
        assert at is not None
        return DueSchedule(schedule_id=schedule_id, due_at=at)

    def get(self, schedule_id: UUID) -> Schedule:
        with self._database.system_scope() as session:
            return session.get_one(Schedule, schedule_id)

    def fires(self, schedule_id: UUID) -> Sequence[ScheduleFire]:
        """In the order in which they were recorded."""
        with self._database.system_scope() as session:
            return session.scalars(
                select(ScheduleFire)
                .where(ScheduleFire.schedule_id == schedule_id)
                .order_by(ScheduleFire.id)
            ).all()

    def outcomes(self, schedule_id: UUID) -> list[tuple[FireOutcome, FireReason | None]]:
        return [(item.outcome, item.reason_code) for item in self.fires(schedule_id)]


def end_batches(database: Database) -> None:
    """Expand whatever was launched, and finish it."""
    with database.system_scope() as session:
        for batch_id in expanding.list_expanding(session):
            assert not expanding.expand_chunk(session, batch_id)
    finish(database)


def launched(database: Database) -> list[Batch]:
    with database.system_scope() as session:
        query = select(Batch).where(Batch.launched_at.is_not(None)).order_by(Batch.launched_at)
        return list(session.scalars(query))
