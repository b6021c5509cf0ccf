"""States of drafts: kept until the draft is finished in full quality, deleted, or too old.

They are found by the draft's `variant_key`, which holds all that decides its pixels: a draft that
was reused from another batch is finished from the same state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, and_, delete, exists, func, not_, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, aliased

from app.models import DraftState, JobPurpose, JobState, RenderJob, Variant
from app.models.base import new_id
from app.services.jobs import is_live
from app.storage import Storage

# Files that one sweep deletes at most.
SWEEP_SIZE = 100
MEDIA_TYPE = "application/octet-stream"


@dataclass(frozen=True, kw_only=True)
class NewState:
    """A file that a worker is about to store for the draft of one of its jobs."""

    job_id: UUID
    storage_key: str
    variant_key: str
    step: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class KeptStates:
    """What is kept of a batch's drafts: how many of them, their bytes, and until when."""

    count: int
    size_bytes: int
    until: datetime | None


def record(session: Session, state: NewState, *, token: int, keep_for: timedelta) -> bool:
    """Note a file before it is uploaded; False unless the token still holds the job.

    What is stored without a note would stay for ever.
    """
    job = session.execute(
        select(RenderJob.workspace_id, RenderJob.variant_id).where(
            RenderJob.id == state.job_id,
            RenderJob.lease_token == token,
            RenderJob.state == JobState.RUNNING,
        )
    ).one_or_none()
    if job is None:
        return False
    values = {
        "workspace_id": job.workspace_id,
        "variant_id": job.variant_id,
        "variant_key": state.variant_key,
        "step": state.step,
        "size_bytes": state.size_bytes,
        "expires_at": func.now() + keep_for,
    }
    session.execute(
        insert(DraftState)
        .values(id=new_id(), storage_key=state.storage_key, **values)
        .on_conflict_do_update(index_elements=[DraftState.storage_key], set_=values)
    )
    return True


def forget(session: Session, storage_key: str) -> None:
    """Take back the note of a file that could not be stored."""
    session.execute(delete(DraftState).where(DraftState.storage_key == storage_key))


def find_files(session: Session, draft_ids: Collection[UUID]) -> Mapping[UUID, str]:
    """The stored file by draft, of those that have one: an old one is good as long as it is there.

    Needs a system session.
    """
    draft = aliased(Variant)
    rows = session.execute(
        select(draft.id, func.max(DraftState.storage_key).label("storage_key"))
        .join(DraftState, _is_of(draft))
        .where(draft.id.in_(draft_ids))
        .group_by(draft.id)
    )
    return {row.id: row.storage_key for row in rows}


def find_kept(session: Session, draft_ids: Collection[UUID]) -> frozenset[UUID]:
    """Those of the drafts that have a state which is still kept."""
    draft = aliased(Variant)
    kept = (
        select(draft.id)
        .join(DraftState, _is_of(draft))
        .where(draft.id.in_(draft_ids), DraftState.expires_at > func.now())
    )
    return frozenset(session.scalars(kept))


def count_kept(session: Session, batch_id: UUID) -> KeptStates:
    """What is kept of the drafts of a batch."""
    draft = aliased(Variant)
    row = session.execute(
        select(
            func.count(draft.id.distinct()).label("number"),
            func.coalesce(func.sum(DraftState.size_bytes), 0).label("size_bytes"),
            func.min(DraftState.expires_at).label("until"),
        )
        .join(DraftState, _is_of(draft))
        .where(draft.batch_id == batch_id, DraftState.expires_at > func.now())
    ).one()
    return KeptStates(count=row.number, size_bytes=int(row.size_bytes), until=row.until)


def sweep(session: Session, storage: Storage, *, limit_bytes: float) -> int:
    """Delete files that are of no use any more, with their notes; returns how many.

    A workspace whose states take more than the limit loses the oldest ones; none that a render
    waits for.
    """
    total = func.sum(DraftState.size_bytes).over(
        partition_by=DraftState.workspace_id,
        order_by=(DraftState.created_at.desc(), DraftState.id.desc()),
    )
    sized = select(DraftState.id, total.label("total")).subquery()
    is_too_much = DraftState.id.in_(select(sized.c.id).where(sized.c.total > limit_bytes))
    is_over = or_(
        DraftState.variant_id.is_(None),
        DraftState.expires_at <= func.now(),
        _has_finished_render(RenderJob.state == JobState.SUCCEEDED),
        is_too_much,
    )
    rows = session.execute(
        select(DraftState.id, DraftState.storage_key)
        .where(is_over, not_(_has_finished_render(is_live())))
        .limit(SWEEP_SIZE)
    ).all()
    for row in rows:
        storage.delete(row.storage_key)
    session.execute(delete(DraftState).where(DraftState.id.in_([row.id for row in rows])))
    return len(rows)


def _is_of(draft: type[Variant]) -> ColumnElement[bool]:
    return and_(
        DraftState.workspace_id == draft.workspace_id,
        DraftState.variant_key == draft.variant_key,
    )


def _has_finished_render(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a render in full quality of the state's draft has a job like that."""
    draft, finished = aliased(Variant), aliased(Variant)
    return exists().where(
        _is_of(draft),
        finished.draft_id == draft.id,
        RenderJob.variant_id == finished.id,
        RenderJob.purpose == JobPurpose.FINAL,
        condition,
    )
