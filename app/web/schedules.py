"""Pages of schedules: launch later or again and again, the list, the log, and what one may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from flask import Blueprint, Response, flash, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import select
from sqlalchemy.orm import Session
from werkzeug.exceptions import NotFound as NoSuchPage

from app.access import Action, Actor, require
from app.errors import InvalidInput
from app.models import Batch, Campaign, FireOutcome, Schedule, Workspace
from app.services import batches, campaigns, schedule_firing, schedules
from app.services.fire_times import check_zone, list_upcoming, zone_names
from app.services.progress import binding_quote
from app.services.schedule_launches import count_combinations
from app.services.schedule_rules import now_of
from app.services.specs import BatchSpec
from app.web.schedule_form import ScheduleForm, errors_of
from app.web.schedule_words import (
    WEEKDAY_NAMES,
    FireLine,
    FireTime,
    fire_line,
    fire_time,
    launch_words,
    schedule_words,
)
from app.web.scope import page, signed_in, start_over

blueprint = Blueprint("schedules", __name__)

SHOWN_FIRES = 50


@dataclass(frozen=True, kw_only=True)
class ScheduleLine:
    """A schedule as the list shows it."""

    schedule: Schedule
    campaign: str
    when: str
    what: str
    next_time: FireTime | None
    last: FireLine | None


@blueprint.get("/schedules")
@signed_in
def index(session: Session, actor: Actor) -> ResponseReturnValue:
    """All schedules; what was deleted last can be taken back."""
    undo = request.args.get("undo", type=UUID)
    rows = schedules.list_schedules(session, actor)
    wanted = Campaign.id.in_({row.campaign_id for row in rows})
    names = {
        row.id: row.name
        for row in session.execute(select(Campaign.id, Campaign.name).where(wanted))
    }
    return page(
        "schedules/index.html",
        lines=[_line(session, actor, row, names[row.campaign_id]) for row in rows],
        undo=schedules.find_deleted(session, actor, undo) if undo else None,
    )


@blueprint.get("/batches/<uuid:batch_id>/schedule")
@signed_in
def new(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    require(actor, Action.LAUNCH)
    batch = batches.get_batch(session, actor, batch_id)
    zone = session.get_one(Workspace, actor.workspace_id).time_zone
    tomorrow = datetime.now(ZoneInfo(zone)) + timedelta(days=1)
    form = ScheduleForm(
        name=_campaign(session, actor, batch).name,
        kind="once" if batch.launched_at is None else "weekly",
        date=f"{tomorrow:%Y-%m-%d}",
        time_zone=zone,
    )
    return _form_page(session, actor, batch, form)


@blueprint.post("/batches/<uuid:batch_id>/schedule")
@signed_in
def create(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    require(actor, Action.LAUNCH)
    batch = batches.get_batch(session, actor, batch_id)
    form = ScheduleForm.read(request.form)
    try:
        schedule = schedules.create_schedule(
            session, actor, batch_id=batch_id, name=form.name, rules=form.to_rules()
        )
    except InvalidInput as error:
        start_over(session, actor)
        batch = batches.get_batch(session, actor, batch_id)
        return _form_page(session, actor, batch, form, error=error)
    return _go_to(schedule.id)


@blueprint.get("/schedules/times")
@signed_in
def times(session: Session, actor: Actor) -> ResponseReturnValue:
    """The next times of a form that is being filled in."""
    form = ScheduleForm.read(request.args)
    try:
        timing, zone = form.to_timing(), check_zone(form.time_zone)
    except InvalidInput as error:
        return page("schedules/times.html", times=[], problem=error.message)
    found = list_upcoming(timing, zone=zone, after=now_of(session))
    problem = "" if found else "This time has gone by. Choose a later one."
    shown = [fire_time(item, zone.key) for item in found]
    return page("schedules/times.html", times=shown, problem=problem)


@blueprint.get("/schedules/<uuid:schedule_id>")
@signed_in
def show(session: Session, actor: Actor, schedule_id: UUID) -> ResponseReturnValue:
    schedule = schedules.get_schedule(session, actor, schedule_id)
    batch = batches.get_batch(session, actor, schedule.batch_id)
    fires = schedules.list_fires(session, actor, schedule_id, limit=SHOWN_FIRES)
    is_rotation = schedule.rotation_size is not None
    return page(
        "schedules/show.html",
        schedule=schedule,
        batch=batch,
        campaign=_campaign(session, actor, batch),
        when=schedule_words(schedule),
        what=launch_words(schedule),
        combinations=count_combinations(BatchSpec.model_validate(batch.spec))
        if is_rotation
        else None,
        times=[
            fire_time(item, schedule.time_zone) for item in schedules.list_next(session, schedule)
        ],
        fires=[fire_line(fire) for fire in fires],
    )


@blueprint.get("/schedules/<uuid:schedule_id>/edit")
@signed_in
def edit(session: Session, actor: Actor, schedule_id: UUID) -> ResponseReturnValue:
    require(actor, Action.LAUNCH)
    schedule = schedules.get_schedule(session, actor, schedule_id)
    batch = batches.get_batch(session, actor, schedule.batch_id)
    return _form_page(session, actor, batch, ScheduleForm.of(schedule), schedule=schedule)


@blueprint.post("/schedules/<uuid:schedule_id>/edit")
@signed_in
def update(session: Session, actor: Actor, schedule_id: UUID) -> ResponseReturnValue:
    require(actor, Action.LAUNCH)
    schedule = schedules.get_schedule(session, actor, schedule_id)
    form = ScheduleForm.read(request.form)
    try:
        schedules.update_schedule(
            session, actor, schedule_id, name=form.name, rules=form.to_rules()
        )
    except InvalidInput as error:
        start_over(session, actor)
        schedule = schedules.get_schedule(session, actor, schedule_id)
        batch = batches.get_batch(session, actor, schedule.batch_id)
        return _form_page(session, actor, batch, form, schedule=schedule, error=error)
    flash("Saved.", "success")
    return _go_to(schedule_id)


@blueprint.post("/schedules/<uuid:schedule_id>/delete")
@signed_in
def delete(session: Session, actor: Actor, schedule_id: UUID) -> ResponseReturnValue:
    schedules.delete_schedule(session, actor, schedule_id)
    return redirect(url_for("schedules.index", undo=schedule_id))


@blueprint.post("/schedules/<uuid:schedule_id>/<verb>")
@signed_in
def act(session: Session, actor: Actor, schedule_id: UUID, verb: str) -> ResponseReturnValue:
    """Pause, resume, run now, or take a deletion back."""
    if verb not in VERBS:
        raise NoSuchPage
    VERBS[verb](session, actor, schedule_id)
    return _go_to(schedule_id)


def _pause(session: Session, actor: Actor, schedule_id: UUID) -> None:
    note = request.form.get("note", "")[: schedules.MAX_NOTE_LENGTH]
    schedules.pause_schedule(session, actor, schedule_id, note=note)
    flash("Paused. What was launched goes on.", "success")


def _resume(session: Session, actor: Actor, schedule_id: UUID) -> None:
    schedules.resume_schedule(session, actor, schedule_id)
    flash("It fires again. What went by in the pause is not made up for.", "success")


def _run(session: Session, actor: Actor, schedule_id: UUID) -> None:
    fire = schedule_firing.run_now(session, actor, schedule_id, now=now_of(session))
    is_good = fire.outcome in (FireOutcome.LAUNCHED, FireOutcome.RESUMED, FireOutcome.QUEUED)
    line = fire_line(fire)
    words = line.reason.removeprefix("Run by hand. ").removeprefix("Run by hand.")
    flash(f"{line.word}. {words}".strip(), "success" if is_good else "warning")


def _restore(session: Session, actor: Actor, schedule_id: UUID) -> None:
    schedule = schedules.restore_schedule(session, actor, schedule_id)
    flash(f"“{schedule.name}” is back.", "success")


VERBS: dict[str, Callable[[Session, Actor, UUID], None]] = {
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "restore": _restore,
}


def _form_page(
    session: Session,
    actor: Actor,
    batch: Batch,
    form: ScheduleForm,
    *,
    schedule: Schedule | None = None,
    error: InvalidInput | None = None,
) -> Response:
    quote = binding_quote(session, batch.id)
    return page(
        "schedules/form.html",
        status=error.status if error else 200,
        batch=batch,
        campaign=_campaign(session, actor, batch),
        form=form,
        schedule=schedule,
        quote=quote,
        can_repeat=not batch.spec.get("drafts_batch_id"),
        can_launch_once=batch.launched_at is None,
        weekdays=[(day.value, name) for day, name in WEEKDAY_NAMES.items()],
        zones=zone_names(),
        today=f"{datetime.now(UTC):%Y-%m-%d}",
        errors=errors_of(error) if error else {},
    )


def _line(session: Session, actor: Actor, schedule: Schedule, campaign: str) -> ScheduleLine:
    upcoming = schedules.list_next(session, schedule)
    fires = schedules.list_fires(session, actor, schedule.id, limit=1)
    return ScheduleLine(
        schedule=schedule,
        campaign=campaign,
        when=schedule_words(schedule),
        what=launch_words(schedule),
        next_time=fire_time(upcoming[0], schedule.time_zone) if upcoming else None,
        last=fire_line(fires[0]) if fires else None,
    )


def _campaign(session: Session, actor: Actor, batch: Batch) -> Any:
    return campaigns.get_campaign(session, actor, batch.campaign_id).campaign


def _go_to(schedule_id: UUID) -> ResponseReturnValue:
    return redirect(url_for("schedules.show", schedule_id=schedule_id))
