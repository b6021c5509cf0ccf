"""Fires schedules by the database's clock, starts what was queued, and keeps deadlines."""

from __future__ import annotations

import logging

from app.db import Database
from app.services import schedule_firing, schedule_upkeep
from app.services.schedule_firing import DueSchedule
from app.services.schedule_rules import now_of
from workers.loop import DATABASE_AWAY

logger = logging.getLogger(__name__)


def run_schedules(database: Database) -> bool:
    """One round; True when something was launched, so that there is work at once.

    Any number of loops may do this at the same time: each fire is taken by one of them.
    """
    with database.system_scope() as session:
        schedule_upkeep.settle_deadlines(session, now=now_of(session))
    with database.system_scope() as session:
        due = schedule_firing.list_due(session, now=now_of(session))
        queued = schedule_upkeep.list_queued(session)
    has_fired = False
    for each in due:
        has_fired |= _fire(database, each)
    for fire_id in queued:
        with database.system_scope() as session:
            has_fired |= schedule_upkeep.start_queued(session, fire_id, now=now_of(session))
    return has_fired


def _fire(database: Database, due: DueSchedule) -> bool:
    try:
        with database.system_scope() as session:
            return schedule_firing.fire(session, due, now=now_of(session)) is not None
    except DATABASE_AWAY:
        raise
    except Exception:
        # Left as it is, it would be due, and fail, for ever.
        logger.exception("schedule %s could not be fired", due.schedule_id)
        with database.system_scope() as session:
            schedule_firing.record_error(session, due, now=now_of(session))
        return False
