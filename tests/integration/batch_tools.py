"""What the tests of batches share: a spec, and the ways from launch to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from app.access import Actor
from app.db import Database
from app.models import (
    Batch,
    BatchState,
    ExpansionMode,
)
from app.services import batches, expanding, leases
from app.services.leases import NewUsage
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from tests.factories import (
    SETTINGS,
    VALUES,
    make_artifact_files,
)

COUNT = 12


def make_spec(**changes: Any) -> BatchSpec:
    parameters = tuple(
        SpecParameter(name=name, kind=name, values=values)  # type: ignore[arg-type]
        for name, values in VALUES.items()
    )
    values: dict[str, Any] = {
        "parameters": parameters,
        "mode": ExpansionMode.CARTESIAN,
        "settings": SpecSettings(**SETTINGS),
    }
    return BatchSpec(**values | changes)


def state_of(database: Database, batch_id: UUID) -> BatchState:
    with database.system_scope() as session:
        return session.get_one(Batch, batch_id).state


def call(database: Database, actor: Actor, verb: Callable[..., Any], batch_id: UUID) -> Any:
    with database.workspace_scope(actor) as session:
        return verb(session, actor, batch_id)


def launch_and_expand(database: Database, actor: Actor, batch_id: UUID) -> None:
    call(database, actor, batches.launch_batch, batch_id)
    with database.system_scope() as session:
        assert not expanding.expand_chunk(session, batch_id)


def finish(database: Database, *, failures: int = 0) -> None:
    """End everything that waits; the first `failures` of it without a result."""
    while True:
        with database.system_scope() as session:
            group = leases.claim(session, worker="worker-1")
        if group is None:
            return
        for job in group.jobs:
            with database.system_scope() as session:
                if failures > 0:
                    failures -= 1
                    leases.finish_failed(
                        session,
                        job_id=job.job_id,
                        token=group.token,
                        code="nan",
                        message="The model computed NaN.",
                        is_retryable=False,
                    )
                    continue
                leases.finish_succeeded(
                    session,
                    job_id=job.job_id,
                    token=group.token,
                    artifact=make_artifact_files(),
                    usage=NewUsage(units=job.shared_units, render_s=0.1),
                )
