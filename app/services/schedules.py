"""Schedules as people steer them: make, change, pause, resume, delete and take back."""

from __future__ import annotations

from typing import Final
from uuid import UUID
from zoneinfo import ZoneInfo

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import Conflict, InvalidInput, LimitExceeded, NotFound
from app.models import (
    Batch,
    Campaign,
    Schedule,
    ScheduleFire,
)
from app.services.fire_times import (
    Occurrence,
    list_upcoming,
)
from app.services.schedule_rules import (
    ScheduleRules,
    apply_rules,
    check_batch,
    now_of,
    rules_of,
    set_next,
    timing_of,
)
from app.services.scoping import get_in_workspace

MAX_SCHEDULES: Final = 200
MAX_NAME_LENGTH: Final = 200
MAX_NOTE_LENGTH: Final = 500


def create_schedule(
    session: Session, actor: Actor, *, batch_id: UUID, name: str | None, rules: ScheduleRules
) -> Schedule:
    """Launch the batch later, or batches like it again and again; InvalidInput names the field."""
    require(actor, Action.LAUNCH)
    batch = get_in_workspace(session, actor, Batch, batch_id)
    number = session.scalar(
        select(func.count())
        .select_from(Schedule)
        .where(Schedule.workspace_id == actor.workspace_id, Schedule.deleted_at.is_(None))
    )
    if (number or 0) >= MAX_SCHEDULES:
        raise LimitExceeded(
            f"A workspace has at most {MAX_SCHEDULES} schedules. Delete one that is no longer used."
        )
    campaign = session.get_one(Campaign, batch.campaign_id)
    schedule = Schedule(
        workspace_id=actor.workspace_id,
        campaign_id=batch.campaign_id,
        batch_id=batch.id,
        name=_clean_name(name or campaign.name),
        rotation_position=0,
        fire_count=0,
        pause_note="",
        created_by=actor.user_id,
    )
    check_batch(batch, rules)
    apply_rules(session, schedule, rules)
    session.add(schedule)
    session.flush()
    session.refresh(schedule)
    return schedule


def update_schedule(
    session: Session, actor: Actor, schedule_id: UUID, *, name: str, rules: ScheduleRules
) -> Schedule:
    """Change a schedule; its next time is the first one from now on."""
    require(actor, Action.LAUNCH)
    schedule = get_locked(session, actor, schedule_id)
    schedule.name = _clean_name(name)
    if rules != rules_of(schedule):
        if rules.timing != timing_of(schedule) or rules.mode is not schedule.mode:
            check_batch(session.get_one(Batch, schedule.batch_id), rules)
        apply_rules(session, schedule, rules)
    schedule.updated_at = now_of(session)
    session.flush()
    return schedule


def get_schedule(session: Session, actor: Actor, schedule_id: UUID) -> Schedule:
    require(actor, Action.VIEW)
    return _get(session, actor, schedule_id)


def find_deleted(session: Session, actor: Actor, schedule_id: UUID) -> Schedule | None:
    """A schedule that was deleted and can be taken back."""
    require(actor, Action.VIEW)
    return session.scalars(
        select(Schedule).where(
            Schedule.id == schedule_id,
            Schedule.workspace_id == actor.workspace_id,
            Schedule.deleted_at.is_not(None),
        )
    ).one_or_none()


def list_schedules(
    session: Session,
    actor: Actor,
    *,
    campaign_id: UUID | None = None,
    batch_id: UUID | None = None,
    limit: int = MAX_SCHEDULES,
    before: UUID | None = None,
) -> list[Schedule]:
    """The newest first; `before` is the last id of the page before."""
    require(actor, Action.VIEW)
    query = select(Schedule).where(
        Schedule.workspace_id == actor.workspace_id, Schedule.deleted_at.is_(None)
    )
    if campaign_id is not None:
        query = query.where(Schedule.campaign_id == campaign_id)
    if batch_id is not None:
        query = query.where(Schedule.batch_id == batch_id)
    if before is not None:
        query = query.where(Schedule.id < before)
    return list(session.scalars(query.order_by(Schedule.id.desc()).limit(limit)))


def list_fires(
    session: Session,
    actor: Actor,
    schedule_id: UUID,
    *,
    limit: int = 50,
    before: UUID | None = None,
) -> list[ScheduleFire]:
    """What became of each time, the last first."""
    schedule = get_schedule(session, actor, schedule_id)
    query = select(ScheduleFire).where(ScheduleFire.schedule_id == schedule.id)
    if before is not None:
        query = query.where(ScheduleFire.id < before)
    return list(session.scalars(query.order_by(ScheduleFire.id.desc()).limit(limit)))


def pause_schedule(
    session: Session, actor: Actor, schedule_id: UUID, *, note: str = ""
) -> Schedule:
    """Fire no more until it is resumed; what was launched goes on."""
    require(actor, Action.LAUNCH)
    schedule = get_locked(session, actor, schedule_id)
    note = " ".join(note.split())
    if len(note) > MAX_NOTE_LENGTH:
        raise InvalidInput(f"A note has at most {MAX_NOTE_LENGTH} characters.", field="note")
    schedule.paused_at = schedule.paused_at or now_of(session)
    schedule.pause_note = note
    session.flush()
    return schedule


def resume_schedule(session: Session, actor: Actor, schedule_id: UUID) -> Schedule:
    """Fire again from now on; times that went by in the pause are not made up for."""
    require(actor, Action.LAUNCH)
    schedule = get_locked(session, actor, schedule_id)
    if schedule.paused_at is None:
        raise Conflict("This schedule is not paused.")
    schedule.paused_at, schedule.pause_note = None, ""
    set_next(session, schedule)
    session.flush()
    return schedule


def delete_schedule(session: Session, actor: Actor, schedule_id: UUID) -> Schedule:
    """Fire no more; batches that it launched stay."""
    require(actor, Action.LAUNCH)
    schedule = get_locked(session, actor, schedule_id)
    schedule.deleted_at = now_of(session)
    session.flush()
    return schedule


def restore_schedule(session: Session, actor: Actor, schedule_id: UUID) -> Schedule:
    """Take a deletion back; the schedule fires from now on, unless it was paused."""
    require(actor, Action.LAUNCH)
    schedule = _get(session, actor, schedule_id, is_deleted=True, for_update=True)
    schedule.deleted_at = None
    set_next(session, schedule)
    session.flush()
    return schedule


def list_next(session: Session, schedule: Schedule) -> list[Occurrence]:
    """The next occurrences; none while it is paused."""
    if schedule.paused_at is not None or schedule.next_fire_at is None:
        return []
    zone = ZoneInfo(schedule.time_zone)
    return list_upcoming(timing_of(schedule), zone=zone, after=now_of(session))


def get_locked(session: Session, actor: Actor, schedule_id: UUID) -> Schedule:
    """The schedule, which nobody else changes or fires until the end of the transaction."""
    return _get(session, actor, schedule_id, for_update=True)


def _get(
    session: Session,
    actor: Actor,
    schedule_id: UUID,
    *,
    is_deleted: bool = False,
    for_update: bool = False,
) -> Schedule:
    query = select(Schedule).where(
        Schedule.id == schedule_id,
        Schedule.workspace_id == actor.workspace_id,
        Schedule.deleted_at.is_not(None) if is_deleted else Schedule.deleted_at.is_(None),
    )
    if for_update:
        query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    schedule = session.scalars(query).one_or_none()
    if schedule is None:
        raise NotFound("There is no such schedule in this workspace.")
    return schedule


def _clean_name(name: str) -> str:
    name = " ".join(name.split())
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidInput(
            f"A schedule has a name of up to {MAX_NAME_LENGTH} characters.", field="name"
        )
    return name
