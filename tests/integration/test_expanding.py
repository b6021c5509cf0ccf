"""A launched batch becomes exactly its variants and jobs, whatever interrupts the expansion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.access import Actor
from app.db import Database
from app.models import (
    Artifact,
    Batch,
    BatchState,
    Campaign,
    ExpansionMode,
    JobState,
    RenderJob,
    Review,
    ReviewState,
    Usage,
    Variant,
)
from app.services import batches, counters, expanding, leases, previews, reviews
from app.services.campaign_list import list_campaigns
from app.services.jobs import NewJob
from app.services.leases import NewUsage
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from app.services.variants import VariantDraft
from engine.plan import plan
from tests.factories import SETTINGS, VALUES, make_artifact_files, make_campaign

pytestmark = pytest.mark.usefixtures("weights")

COUNT = 12  # 2 backdrops × 3 geographies × 2 audiences


def make_spec(**changes: Any) -> BatchSpec:
    parameters = tuple(
        SpecParameter(name=name, kind=name, values=values)  # type: ignore[arg-type]
        for name, values in VALUES.items()
    )
    values: dict[str, Any] = {
        "parameters": parameters,
        "mode": ExpansionMode.CARTESIAN,
        "settings": SpecSettings(**SETTINGS),
        "seed": 11,
    }
    return BatchSpec(**values | changes)


def launch(database: Database, actor: Actor, campaign: Campaign, **changes: Any) -> UUID:
    with database.workspace_scope(actor) as session:
        batch = batches.create_batch(
            session, actor, campaign_id=campaign.id, spec=make_spec(**changes)
        )
        batches.launch_batch(session, actor, batch.id)
    return batch.id


def expand(database: Database, batch_id: UUID, *, chunk_size: int = 5) -> int:
    """Expand to the end; returns the number of chunks."""
    for chunks in range(1, 100):
        with database.system_scope() as session:
            if not expanding.expand_chunk(session, batch_id, chunk_size=chunk_size):
                return chunks
    raise AssertionError("the expansion does not end")


def ordinals(database: Database, batch_id: UUID) -> list[int]:
    with database.system_scope() as session:
        query = select(Variant.ordinal).where(Variant.batch_id == batch_id)
        return sorted(session.scalars(query))


def job_states(database: Database, batch_id: UUID) -> dict[JobState, int]:
    with database.system_scope() as session:
        rows = session.execute(
            select(RenderJob.state, func.count())
            .where(RenderJob.batch_id == batch_id)
            .group_by(RenderJob.state)
        )
        return {row[0]: row[1] for row in rows}


def render_all(database: Database) -> int:
    """Finish whatever can be claimed; returns the number of renders."""
    renders = 0
    while True:
        with database.system_scope() as session:
            group = leases.claim(session, worker="worker-1")
        if group is None:
            return renders
        for job in group.jobs:
            renders += 1
            with database.system_scope() as session:
                assert leases.finish_succeeded(
                    session,
                    job_id=job.job_id,
                    token=group.token,
                    artifact=make_artifact_files(),
                    usage=NewUsage(units=job.shared_units, render_s=0.1),
                )


def test_a_batch_is_expanded_chunk_by_chunk(
    database: Database, actor: Actor, campaign: Campaign
) -> None:
    batch_id = launch(database, actor, campaign)
    with database.system_scope() as session:
        assert expanding.list_expanding(session) == [batch_id]
    assert expand(database, batch_id) == 3
    assert ordinals(database, batch_id) == list(range(COUNT))
    assert job_states(database, batch_id) == {JobState.QUEUED: COUNT}
    with database.system_scope() as session:
        batch = session.get_one(Batch, batch_id)
        variant = session.scalars(select(Variant).where(Variant.ordinal == 0)).one()
        assert batch.state is BatchState.RUNNING
        assert expanding.list_expanding(session) == []
    assert variant.prompt == "a red sneaker on a beach, in paris, for kids"
    assert variant.values == {"backdrop": "a beach", "geography": "paris", "audience": "kids"}
    for slot in variant.slots:
        start, end = slot["span"]
        assert variant.prompt[start:end] == slot["value"]
    assert {slot["kind"] for slot in variant.slots} == {"backdrop", "geography", "audience"}


def test_a_crash_in_the_middle_of_a_chunk_leaves_no_half_and_no_double(
    database: Database, actor: Actor, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = launch(database, actor, campaign)
    with database.system_scope() as session:
        expanding.expand_chunk(session, batch_id, chunk_size=5)

    write_jobs = expanding.copy_jobs

    def lose_connection(session: Session, jobs: Sequence[NewJob]) -> None:
        write_jobs(session, jobs)
        session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    with monkeypatch.context() as patch:
        patch.setattr(expanding, "copy_jobs", lose_connection)
        with pytest.raises(OperationalError), database.system_scope() as session:
            expanding.expand_chunk(session, batch_id, chunk_size=5)
    assert ordinals(database, batch_id) == list(range(5))
    assert job_states(database, batch_id) == {JobState.QUEUED: 5}

    expand(database, batch_id)
    assert ordinals(database, batch_id) == list(range(COUNT))
    assert job_states(database, batch_id) == {JobState.QUEUED: COUNT}
    with database.system_scope() as session:
        assert counters.count_jobs(session, batch_id).by_state == {JobState.QUEUED: COUNT}


def test_two_expanders_do_not_write_a_chunk_twice(
    database: Database, actor: Actor, campaign: Campaign
) -> None:
    batch_id = launch(database, actor, campaign)
    with database.system_scope() as first, database.system_scope() as second:
        assert expanding.expand_chunk(first, batch_id, chunk_size=5)
        assert not expanding.expand_chunk(second, batch_id, chunk_size=5)
    expand(database, batch_id)
    assert ordinals(database, batch_id) == list(range(COUNT))


def test_jobs_of_the_first_chunk_can_be_claimed_before_the_last_is_written(
    database: Database, actor: Actor, campaign: Campaign
) -> None:
    batch_id = launch(database, actor, campaign)
    with database.system_scope() as session:
        expanding.expand_chunk(session, batch_id, chunk_size=5)
    assert render_all(database) == 5
    with database.system_scope() as session:
        assert session.get_one(Batch, batch_id).state is BatchState.EXPANDING
    expand(database, batch_id)
    assert render_all(database) == 7
    with database.system_scope() as session:
        assert session.get_one(Batch, batch_id).state is BatchState.COMPLETED


def test_the_groups_are_those_of_the_plan(
    database: Database, actor: Actor, campaign: Campaign
) -> None:
    batch_id = launch(database, actor, campaign)
    expand(database, batch_id, chunk_size=100)
    with database.system_scope() as session:
        batch = session.get_one(Batch, batch_id)
        source = expanding.open_source(
            session,
            BatchSpec.model_validate(batch.spec),
            prompt_template_id=batch.prompt_template_id,
            upload_id=None,
        )
        planned = plan([draft.to_request() for draft in source.drafts()])
        jobs = session.execute(
            select(RenderJob, Variant.ordinal)
            .join(Variant, Variant.id == RenderJob.variant_id)
            .order_by(RenderJob.group_key, RenderJob.plan_order)
        ).all()
    assert sum(job.shared_units for job, _ in jobs) == pytest.approx(planned.shared_units)
    assert [int(member.request_id) for member in planned.groups[0].members] == [
        ordinal for job, ordinal in jobs if job.group_key.endswith(planned.groups[0].group_key)
    ]


def test_takes_repeat_the_combinations_with_other_seeds(
    database: Database, actor: Actor, campaign: Campaign
) -> None:
    batch_id = launch(database, actor, campaign, takes=2)
    expand(database, batch_id)
    assert ordinals(database, batch_id) == list(range(2 * COUNT))
    with database.system_scope() as session:
        rows = session.execute(
            select(Variant.prompt, Variant.seed).where(Variant.ordinal.in_((3, 3 + COUNT)))
        ).all()
    assert {row.prompt for row in rows} == {rows[0].prompt}
    assert {row.seed for row in rows} == {11, 12}


def test_what_the_workspace_has_rendered_is_reused_free_of_charge(
    database: Database, actor: Actor, campaign: Campaign
) -> None:
    expand(database, launch(database, actor, campaign))
    assert render_all(database) == COUNT

    again = launch(database, actor, campaign)
    expand(database, again)
    assert job_states(database, again) == {JobState.SUCCEEDED: COUNT}
    assert render_all(database) == 0
    with database.system_scope() as session:
        assert session.get_one(Batch, again).state is BatchState.COMPLETED
        assert session.scalar(select(func.count()).select_from(Artifact)) == COUNT
        usage = session.scalars(select(Usage).where(Usage.batch_id == again)).all()
        counts = counters.count_jobs(session, again)
    assert len(usage) == COUNT
    assert all(row.is_reused and row.cost_micros == 0 for row in usage)
    assert counts.by_state == {JobState.SUCCEEDED: COUNT}
    assert counts.cost_micros == 0


def test_reused_output_keeps_the_decision_that_was_made_on_it(
    database: Database, actor: Actor, campaign: Campaign
) -> None:
    def by_ordinal(batch_id: UUID) -> dict[int, UUID]:
        with database.system_scope() as session:
            rows = session.execute(
                select(Variant.ordinal, Variant.id).where(Variant.batch_id == batch_id)
            )
            return {row.ordinal: row.id for row in rows}

    first = launch(database, actor, campaign)
    expand(database, first)
    render_all(database)
    ids = by_ordinal(first)
    with database.workspace_scope(actor) as session:
        reviews.set_review(session, actor, [ids[0], ids[1]], ReviewState.APPROVED)
        reviews.set_review(session, actor, [ids[1]], ReviewState.REJECTED, "A third shoe")
        reviews.set_review(session, actor, [ids[2]], ReviewState.PENDING)
    again = launch(database, actor, campaign)
    expand(database, again)
    twins = by_ordinal(again)
    with database.system_scope() as session:
        found = {
            review.variant_id: (review.state, review.reason, review.reviewed_by)
            for review in session.scalars(select(Review))
            if review.variant_id in twins.values()
        }
    assert found == {
        twins[0]: (ReviewState.APPROVED, "", actor.user_id),
        twins[1]: (ReviewState.REJECTED, "A third shoe", actor.user_id),
    }
    with database.workspace_scope(actor) as session:
        assert list_campaigns(session, actor)[0].unreviewed == 2 * (COUNT - 2)
    # What is rendered anew has to be looked at anew.
    forced = launch(database, actor, campaign, force_render=True)
    expand(database, forced)
    render_all(database)
    with database.workspace_scope(actor) as session:
        assert list_campaigns(session, actor)[0].unreviewed == 2 * (COUNT - 2) + COUNT


def test_a_fresh_render_can_be_forced(database: Database, actor: Actor, campaign: Campaign) -> None:
    expand(database, launch(database, actor, campaign))
    render_all(database)
    forced = launch(database, actor, campaign, force_render=True)
    expand(database, forced)
    assert render_all(database) == COUNT


def test_other_weights_reuse_nothing(
    database: Database, actor: Actor, campaign: Campaign, weights: Path
) -> None:
    expand(database, launch(database, actor, campaign))
    render_all(database)
    (weights / "transformer" / "config.json").write_text('{"num_layers": 2}')
    expand(database, launch(database, actor, campaign))
    assert render_all(database) == COUNT


def test_equal_rows_of_a_batch_are_rendered_once_and_charged_once(
    database: Database, actor: Actor
) -> None:
    with database.system_scope() as session:
        campaign = make_campaign(session, workspace_id=actor.workspace_id, prompt="{{ text }}")
    parameter = SpecParameter(name="text", kind="text", values=("a", "b", "a", "a"))  # type: ignore[arg-type]
    batch_id = launch(database, actor, campaign, parameters=(parameter,), mode=ExpansionMode.ZIP)
    # Each row in a chunk of its own, so that the twins stand in different groups.
    expand(database, batch_id, chunk_size=1)
    assert render_all(database) == 2
    assert job_states(database, batch_id) == {JobState.SUCCEEDED: 4}
    with database.system_scope() as session:
        assert session.scalar(select(func.sum(RenderJob.start_count))) == 2
        assert session.get_one(Batch, batch_id).state is BatchState.COMPLETED


def test_previewed_variants_are_not_written_twice(
    database: Database, actor: Actor, campaign: Campaign
) -> None:
    with database.workspace_scope(actor) as session:
        batch = batches.create_batch(session, actor, campaign_id=campaign.id, spec=make_spec())
        previews.render_preview(session, actor, batch.id, [0, 7])
        batches.launch_batch(session, actor, batch.id)
    expand(database, batch.id)
    assert ordinals(database, batch.id) == list(range(COUNT))
    assert job_states(database, batch.id) == {JobState.QUEUED: COUNT + 2}


def test_a_paused_batch_is_not_expanded_until_it_is_resumed(
    database: Database, actor: Actor, campaign: Campaign
) -> None:
    batch_id = launch(database, actor, campaign)
    with database.system_scope() as session:
        expanding.expand_chunk(session, batch_id, chunk_size=5)
    with database.workspace_scope(actor) as session:
        batches.pause_batch(session, actor, batch_id)
    expand(database, batch_id)
    assert len(ordinals(database, batch_id)) == 5
    with database.workspace_scope(actor) as session:
        assert batches.resume_batch(session, actor, batch_id).state is BatchState.EXPANDING
    expand(database, batch_id)
    assert len(ordinals(database, batch_id)) == COUNT


def test_input_that_has_become_unusable_ends_the_batch_with_the_reason(
    database: Database, actor: Actor, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = launch(database, actor, campaign)

    def lose_rows(*_: object, **__: object) -> Iterator[VariantDraft]:
        return iter(())

    monkeypatch.setattr(expanding, "iterate_drafts", lose_rows)
    expand(database, batch_id)
    with database.system_scope() as session:
        batch = session.get_one(Batch, batch_id)
    assert batch.state is BatchState.FAILED
    assert "quoted for 12" in (batch.failure or "")
