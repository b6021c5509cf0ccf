"""What is seen of a batch: quick previews before the launch, and its variants in the gallery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select, update

from app.access import Actor, Role
from app.db import Database
from app.errors import Conflict, InvalidInput, LimitExceeded, NotFound
from app.models import (
    Batch,
    BatchState,
    JobPurpose,
    JobState,
    RenderJob,
    Variant,
)
from app.services import batches, counters, leases, previews
from app.services.leases import NewUsage
from app.services.specs import SpecSettings
from tests.factories import (
    SETTINGS,
    make_artifact_files,
    make_jobs,
    make_workspace,
)
from tests.integration.batch_tools import (
    COUNT,
    call,
    finish,
    launch_and_expand,
    state_of,
)

pytestmark = pytest.mark.usefixtures("weights")


class TestPreviews:
    def test_a_preview_takes_few_steps_is_free_and_shown_until_the_final_render(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create(settings=SpecSettings(**SETTINGS | {"num_inference_steps": 30}))
        with database.workspace_scope(actor) as session:
            assert len(previews.render_preview(session, actor, batch.id, [3, 3, 8])) == 2
            assert previews.render_preview(session, actor, batch.id, [8]) == []
        with database.system_scope() as session:
            group = leases.claim(session, worker="worker-1")
        assert group is not None
        assert {job.purpose for job in group.jobs} == {JobPurpose.PREVIEW}
        assert group.jobs[0].settings.num_inference_steps == 12
        for job in group.jobs:
            with database.system_scope() as session:
                leases.finish_succeeded(
                    session,
                    job_id=job.job_id,
                    token=group.token,
                    artifact=make_artifact_files(),
                    usage=NewUsage(units=job.shared_units, render_s=0.1),
                )
        views = call(database, actor, batches.list_variants, batch.id)
        assert [view.variant.ordinal for view in views] == [3, 8]
        assert all(view.is_preview for view in views)
        assert state_of(database, batch.id) is BatchState.PREVIEWING

        launch_and_expand(database, actor, batch.id)
        finish(database)
        views = call(database, actor, batches.list_variants, batch.id)
        assert len(views) == COUNT
        assert not any(view.is_preview for view in views)
        progress = call(database, actor, batches.get_progress, batch.id)
        assert progress.counts == {JobState.SUCCEEDED: COUNT}
        with database.system_scope() as session:
            previewed = counters.count_jobs(session, batch.id, purpose=JobPurpose.PREVIEW)
        assert (previewed.by_state, previewed.cost_micros) == ({JobState.SUCCEEDED: 2}, 0)

    def test_previews_go_before_final_renders(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        launched, draft = create(), create()
        launch_and_expand(database, actor, launched.id)
        with database.workspace_scope(actor) as session:
            previews.render_preview(session, actor, draft.id, [0])
        with database.system_scope() as session:
            group = leases.claim(session, worker="worker-1")
        assert group is not None
        assert group.jobs[0].batch_id == draft.id

    def test_a_preview_nobody_rendered_ends_with_the_batch(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create()
        with database.system_scope() as session:
            session.execute(update(Batch).values(state=BatchState.RUNNING, expanded_at=func.now()))
            running = session.get_one(Batch, batch.id)
            make_jobs(session, running, ["a"], purpose=JobPurpose.PREVIEW, priority=20)
            make_jobs(session, running, ["b"])
            group = leases.claim(session, worker="worker-1")
            assert group is not None
            leases.finish_succeeded(
                session,
                job_id=group.jobs[0].job_id,
                token=group.token,
                artifact=make_artifact_files(),
                usage=NewUsage(units=1, render_s=1),
            )
        with database.system_scope() as session:
            states = session.execute(select(RenderJob.purpose, RenderJob.state)).all()
        assert {tuple(row) for row in states} == {
            (JobPurpose.FINAL, JobState.SUCCEEDED),
            (JobPurpose.PREVIEW, JobState.CANCELLED),
        }

    def test_previews_are_limited_and_end_with_the_launch(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create(takes=2)
        with database.workspace_scope(actor) as session:
            with pytest.raises(LimitExceeded, match="12 previews"):
                previews.render_preview(session, actor, batch.id, range(13))
            with pytest.raises(InvalidInput, match="from 0 to 23"):
                previews.render_preview(session, actor, batch.id, [24])
            batches.launch_batch(session, actor, batch.id)
            with pytest.raises(Conflict, match="no more previews"):
                previews.render_preview(session, actor, batch.id, [0])


class TestGallery:
    def test_variants_are_narrowed_by_state_and_values(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create()
        launch_and_expand(database, actor, batch.id)
        finish(database, failures=2)
        with database.workspace_scope(actor) as session:

            def ordinals(**filters: Any) -> list[int]:
                views = batches.list_variants(session, actor, batch.id, **filters)
                return [view.variant.ordinal for view in views]

            failed = session.scalars(
                select(Variant.ordinal)
                .join(RenderJob, RenderJob.variant_id == Variant.id)
                .where(RenderJob.state == JobState.FAILED)
                .order_by(Variant.ordinal)
            ).all()
            assert len(failed) == 2
            assert ordinals(state=JobState.FAILED) == failed
            assert ordinals(values={"geography": "tokyo", "backdrop": "a beach"}) == [2, 3]
            assert ordinals(limit=3, after_ordinal=4) == [5, 6, 7]
            view = batches.list_variants(session, actor, batch.id, after_ordinal=4, limit=1)[0]
            assert batches.get_variant(session, actor, view.variant.id).artifact is not None

    def test_a_variant_of_another_workspace_is_not_found(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create()
        launch_and_expand(database, actor, batch.id)
        with database.system_scope() as session:
            variant_id = session.scalars(select(Variant.id).limit(1)).one()
            stranger = Actor(workspace_id=make_workspace(session).id, role=Role.OWNER)
            with pytest.raises(NotFound):
                batches.get_variant(session, stranger, variant_id)
            assert batches.list_variants(session, stranger, batch.id) == []
            with pytest.raises(NotFound):
                batches.cancel_batch(session, stranger, batch.id)
