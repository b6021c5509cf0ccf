"""The one way to read a row by id: through the actor's workspace."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access import Actor
from app.errors import NotFound
from app.models import Artifact, Batch, Campaign, Quote, Upload, Variant

Scoped = TypeVar("Scoped", Artifact, Batch, Campaign, Quote, Upload, Variant)


def get_in_workspace(session: Session, actor: Actor, model: type[Scoped], row_id: UUID) -> Scoped:
    """The row, or NotFound: also when it belongs to another workspace."""
    row = session.scalars(
        select(model).where(model.id == row_id, model.workspace_id == actor.workspace_id)
    ).one_or_none()
    if row is None:
        raise NotFound(f"There is no such {model.__name__.lower()} in this workspace.")
    return row
