"""What the tests of leases do as workers: claim, finish, fail, rescue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from sqlalchemy import func, select

from app.db import Database
from app.models import (
    Batch,
    JobPurpose,
    RenderJob,
)
from app.services import in_flight, leases
from app.services.in_flight import InHand
from app.services.leases import ClaimedGroup, NewUsage
from tests.factories import make_artifact_files

ReadJob = Callable[[UUID], RenderJob]
PassTime = Callable[..., None]

USAGE = NewUsage(units=8.0, render_s=1.5)


def claim(database: Database, worker: str = "worker-1", **options: object) -> ClaimedGroup | None:
    with database.system_scope() as session:
        return leases.claim(session, worker=worker, **options)  # type: ignore[arg-type]


def claim_some(database: Database, worker: str = "worker-1", **options: object) -> ClaimedGroup:
    group = claim(database, worker, **options)
    assert group is not None
    return group


def succeed(database: Database, job_id: UUID, token: int) -> bool:
    with database.system_scope() as session:
        return leases.finish_succeeded(
            session, job_id=job_id, token=token, artifact=make_artifact_files(), usage=USAGE
        )


def fail(
    database: Database, job_id: UUID, token: int, *, is_retryable: bool, code: str = "nan"
) -> bool:
    with database.system_scope() as session:
        return leases.finish_failed(
            session,
            job_id=job_id,
            token=token,
            code=code,
            message="It went wrong.",
            is_retryable=is_retryable,
        )


def rescue(database: Database) -> int:
    with database.system_scope() as session:
        return leases.rescue_expired(session)


def say_in_hand(
    database: Database, batch: Batch, group: ClaimedGroup, job_ids: Sequence[UUID]
) -> None:
    with database.system_scope() as session:
        in_flight.report(
            session,
            worker="worker-1",
            in_hand=InHand(
                batch_id=batch.id,
                purpose=JobPurpose.FINAL,
                lease_token=group.token,
                job_count=len(group.jobs),
                group_count=len(group.jobs),
                steps_done=1,
                steps_planned=16,
                job_ids=tuple(job_ids),
            ),
        )


def count(database: Database, table: type) -> int:
    with database.system_scope() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0
