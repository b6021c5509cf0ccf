"""States of renders that were stopped between two steps: who may go on from them, and how long.

A state is of use while a job of its variant may still be rendered; then it is swept away. One that
nobody came for expires.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import and_, delete, exists, func, insert, literal, select
from sqlalchemy.orm import Session

from app.models import JobState, RenderJob, RenderState
from app.services.jobs import is_live
from app.storage import Storage

# Longer than a weekend: a render window may open again only then.
LIFETIME = timedelta(days=4)
# Keys that one sweep takes at most.
SWEEP_SIZE = 100


def record(
    session: Session,
    *,
    token: int,
    job_ids: Collection[UUID],
    storage_key: str,
    step: int,
    size_bytes: int,
) -> int:
    """Note a file for the variants of jobs that this lease holds; returns how many these are.

    Noted before it is uploaded: what is stored without a note would stay for ever.
    """
    columns = ("variant_id", "storage_key", "workspace_id", "step", "size_bytes", "expires_at")
    held = select(
        RenderJob.variant_id,
        literal(storage_key),
        RenderJob.workspace_id,
        literal(step),
        literal(size_bytes),
        func.now() + LIFETIME,
    ).where(
        RenderJob.id.in_(job_ids),
        RenderJob.lease_token == token,
        RenderJob.state == JobState.RUNNING,
    )
    noted = session.execute(
        insert(RenderState).from_select(columns, held).returning(RenderState.variant_id)
    )
    return len(noted.all())


def find_keys(session: Session, variant_ids: Collection[UUID]) -> Sequence[str]:
    """The files that hold states of these variants, the oldest first."""
    found = session.execute(
        select(RenderState.storage_key, func.max(RenderState.created_at).label("noted_at"))
        .where(RenderState.variant_id.in_(variant_ids), RenderState.expires_at > func.now())
        .group_by(RenderState.storage_key)
        .order_by("noted_at")
    )
    return [row.storage_key for row in found]


def sweep(session: Session, storage: Storage) -> int:
    """Delete files that are of no use to anybody any more, with their notes; returns how many."""
    alive = and_(RenderJob.variant_id == RenderState.variant_id, is_live())
    is_of_use = and_(RenderState.expires_at > func.now(), exists().where(alive))
    keys = session.scalars(
        select(RenderState.storage_key)
        .group_by(RenderState.storage_key)
        .having(~func.bool_or(is_of_use))
        .limit(SWEEP_SIZE)
    ).all()
    for key in keys:
        storage.delete(key)
    session.execute(delete(RenderState).where(RenderState.storage_key.in_(keys)))
    return len(keys)
