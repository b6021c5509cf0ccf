"""What a workspace has used: renders, units and cost by day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from sqlalchemy import Date, cast, func, select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.models import Usage


@dataclass(frozen=True, kw_only=True)
class DayUsage:
    """One day (UTC); `reused` of the renders cost nothing, having been rendered before."""

    day: date
    renders: int
    reused: int
    units: float
    cost_micros: int
    render_s: float


def list_usage(session: Session, actor: Actor, *, since: date, until: date) -> list[DayUsage]:
    """Usage of the days from `since` to `until`, both included; days without any are left out."""
    require(actor, Action.VIEW)
    day = cast(func.timezone("UTC", Usage.created_at), Date).label("day")
    rows = session.execute(
        select(
            day,
            func.count().label("renders"),
            func.count().filter(Usage.is_reused).label("reused"),
            func.sum(Usage.units).label("units"),
            func.sum(Usage.cost_micros).label("cost_micros"),
            func.sum(Usage.render_s).label("render_s"),
        )
        .where(Usage.workspace_id == actor.workspace_id, day >= since, day <= until)
        .group_by(day)
        .order_by(day)
    )
    return [
        DayUsage(
            day=row.day,
            renders=row.renders,
            reused=row.reused,
            units=float(row.units),
            cost_micros=int(row.cost_micros),
            render_s=float(row.render_s),
        )
        for row in rows
    ]
