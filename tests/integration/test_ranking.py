"""The order of claims: previews, then affinity, then age, and nobody starves."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import func, text, update

from app.db import Database
from app.models import Batch, BatchState, JobPurpose, RenderJob, Workspace
from app.services import dispatch, leases
from app.services.leases import ClaimedGroup
from app.services.ranking import PATIENCE_S
from tests.factories import make_batch, make_campaign, make_jobs


def claim(database: Database, worker: str = "worker-1", *held: str) -> ClaimedGroup:
    with database.system_scope() as session:
        group = leases.claim(session, worker=worker, held_affinity=held)
    assert group is not None
    return group


def another_batch(database: Database, workspace_id: UUID) -> Batch:
    with database.system_scope() as session:
        return make_batch(session, campaign=make_campaign(session, workspace_id=workspace_id))


def queue(
    database: Database, batch: Batch, *groups: list[str], age_s: float = 0, **columns: object
) -> None:
    with database.system_scope() as session:
        ids = make_jobs(session, batch, *groups, **columns)  # type: ignore[arg-type]
        session.execute(
            update(RenderJob)
            .where(RenderJob.id.in_(ids))
            .values(scheduled_at=func.now() - func.make_interval(0, 0, 0, 0, 0, 0, age_s))
        )


def serve(database: Database, batch: Batch, *, ago_s: float) -> None:
    """As if a worker had taken work from the batch so long ago."""
    with database.system_scope() as session:
        session.execute(
            update(Batch)
            .where(Batch.id == batch.id)
            .values(last_claimed_at=func.now() - func.make_interval(0, 0, 0, 0, 0, 0, ago_s))
        )


def test_the_oldest_group_goes_first(
    database: Database, batch: Batch, workspace: Workspace
) -> None:
    younger = another_batch(database, workspace.id)
    queue(database, younger, ["young"], age_s=5)
    queue(database, batch, ["old"], age_s=10)
    assert claim(database).jobs[0].prompt == "old"


def test_what_the_worker_holds_goes_before_the_oldest(
    database: Database, batch: Batch, workspace: Workspace
) -> None:
    younger = another_batch(database, workspace.id)
    queue(database, batch, ["old"], age_s=10, affinity_key="cold")
    queue(database, younger, ["young"], age_s=5, affinity_key="warm")
    assert claim(database, "worker-1", "warm").jobs[0].prompt == "young"
    assert claim(database, "worker-1", "warm").jobs[0].prompt == "old"


def test_a_preview_goes_before_what_the_worker_holds(database: Database, batch: Batch) -> None:
    queue(database, batch, ["final"], age_s=50, affinity_key="warm")
    queue(database, batch, ["preview"], purpose=JobPurpose.PREVIEW, affinity_key="cold")
    assert claim(database, "worker-1", "warm").jobs[0].prompt == "preview"


def test_a_batch_that_has_waited_too_long_goes_before_affinity(
    database: Database, batch: Batch, workspace: Workspace
) -> None:
    other = another_batch(database, workspace.id)
    queue(database, batch, ["a 1"], ["a 2"], age_s=900, affinity_key="warm")
    queue(database, other, ["b"], age_s=900, affinity_key="cold")
    serve(database, batch, ago_s=1)
    serve(database, other, ago_s=PATIENCE_S - 10)
    assert claim(database, "worker-1", "warm").jobs[0].prompt.startswith("a")
    serve(database, batch, ago_s=1)
    serve(database, other, ago_s=PATIENCE_S + 10)
    assert claim(database, "worker-1", "warm").jobs[0].prompt == "b"


def test_the_workspace_with_less_work_running_goes_first(
    database: Database, batch: Batch, foreign_batch: Batch
) -> None:
    queue(database, batch, *([f"ours {number}"] for number in range(4)), age_s=30)
    queue(database, foreign_batch, ["theirs"], age_s=1)
    assert claim(database).jobs[0].prompt.startswith("ours")
    assert claim(database).jobs[0].prompt == "theirs"


def test_a_small_workspace_is_served_though_one_worker_holds_the_keys_of_a_large_one(
    database: Database, batch: Batch, foreign_batch: Batch
) -> None:
    queue(
        database,
        batch,
        *([f"ours {number}"] for number in range(9)),
        age_s=500,
        affinity_key="warm",
    )
    queue(database, foreign_batch, ["theirs"], age_s=500, affinity_key="cold")
    with database.system_scope() as session:
        session.execute(text("UPDATE batches SET launched_at = now() - interval '10 minutes'"))
    prompts = []
    for _ in range(2):
        group = claim(database, "worker-1", "warm")
        prompts.append(group.jobs[0].prompt)
        with database.system_scope() as session:
            # One worker: nothing is running when it asks for more.
            leases.finish_failed(
                session, job_id=group.jobs[0].job_id, token=group.token, code="x", message="x",
                is_retryable=False,
            )  # fmt: skip
    assert "theirs" in prompts


def test_hints_name_one_group_per_live_batch(
    database: Database, batch: Batch, foreign_batch: Batch
) -> None:
    queue(database, batch, ["a"], ["b"], affinity_key="ours")
    queue(database, foreign_batch, ["c"], affinity_key="theirs")
    with database.system_scope() as session:
        hints = dispatch.pending_hints(session)
    assert {(hint.batch_id, hint.affinity_key) for hint in hints} == {
        (batch.id, "ours"),
        (foreign_batch.id, "theirs"),
    }


def test_due_jobs_are_opened_and_those_of_a_paused_batch_wait(
    database: Database, batch: Batch, foreign_batch: Batch
) -> None:
    queue(database, batch, ["due"], ["later"], age_s=5)
    queue(database, foreign_batch, ["paused"], age_s=5)
    with database.system_scope() as session:
        session.execute(text("UPDATE render_jobs SET state = 'scheduled'"))
        session.execute(
            text(
                "UPDATE render_jobs SET scheduled_at = now() + interval '1 hour' WHERE variant_id ="
                " (SELECT id FROM variants WHERE prompt = 'later')"
            )
        )
        session.execute(
            update(Batch).where(Batch.id == foreign_batch.id).values(state=BatchState.PAUSED)
        )
    with database.system_scope() as session:
        assert dispatch.open_due_jobs(session) == 1
        assert dispatch.open_due_jobs(session) == 0
    assert claim(database).jobs[0].prompt == "due"
