"""What people do with a batch, from the quote to the end, through the services."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable

import pytest
from sqlalchemy import func, select, update

from app.access import Actor, Role
from app.db import Database
from app.errors import Conflict, Forbidden, InvalidInput, LimitExceeded, NotFound
from app.models import (
    Attempt,
    Batch,
    BatchState,
    Campaign,
    ExpansionMode,
    JobState,
    RenderJob,
    Variant,
    Workspace,
)
from app.services import batches, completion, expanding, leases, uploads
from app.services.leases import NewUsage
from app.services.specs import SpecParameter, SpecSettings
from app.services.table_findings import TableError
from app.storage import Storage
from tests.factories import (
    SETTINGS,
    make_artifact_files,
    make_workspace,
)
from tests.integration.batch_tools import (
    COUNT,
    call,
    finish,
    launch_and_expand,
    make_spec,
    state_of,
)

pytestmark = pytest.mark.usefixtures("weights")


class TestCreate:
    def test_a_new_batch_has_a_quote_and_nothing_else(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create()
        assert (batch.state, batch.variant_count) == (BatchState.PREVIEWING, COUNT)
        assert batch.name == "Batch 1"
        progress = call(database, actor, batches.get_progress, batch.id)
        assert progress.quote.variant_count == COUNT
        assert progress.quote.cost_micros > 0
        assert (progress.total, progress.done, progress.rate_per_s) == (COUNT, 0, None)
        with database.system_scope() as session:
            assert session.scalar(select(func.count()).select_from(Variant)) == 0
            assert session.scalar(select(func.count()).select_from(RenderJob)) == 0

    def test_the_limit_of_the_workspace_is_named(
        self, database: Database, create: Callable[..., Batch]
    ) -> None:
        with database.system_scope() as session:
            session.execute(update(Workspace).values(max_variants_per_batch=11))
        with pytest.raises(LimitExceeded, match="12 variants, and this workspace allows 11"):
            create()
        with database.system_scope() as session:
            assert session.scalar(select(func.count()).select_from(Batch)) == 0

    def test_a_placeholder_without_values_is_named_with_its_place(
        self, create: Callable[..., Batch]
    ) -> None:
        spec = make_spec()
        with pytest.raises(InvalidInput, match=r"\{\{ audience \}\} \(line 1, column \d+\)"):
            create(parameters=spec.parameters[:2])

    def test_settings_that_the_model_cannot_render_are_named(
        self, create: Callable[..., Batch]
    ) -> None:
        with pytest.raises(InvalidInput, match="5 or 9") as caught:
            create(settings=SpecSettings(**SETTINGS | {"num_frames": 6}))
        assert caught.value.field == "num_frames"

    def test_a_prompt_that_the_model_would_cut_is_refused(
        self, create: Callable[..., Batch]
    ) -> None:
        spec = make_spec()
        long = SpecParameter(name="audience", kind="audience", values=("kids", "very " * 90))  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match=r"Variant 2: .* shorten it"):
            create(parameters=(*spec.parameters[:2], long))

    def test_a_size_that_the_model_lacks_is_refused_with_the_variant(
        self, create: Callable[..., Batch]
    ) -> None:
        size = SpecParameter(name="format", kind="size", values=("16:9", "3:1"))  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match=r"Variant 2: format: '3:1' is no size"):
            create(parameters=(*make_spec().parameters, size))

    def test_a_viewer_may_not_create_and_an_editor_may(
        self, database: Database, actor: Actor, campaign: Campaign
    ) -> None:
        viewer = Actor(workspace_id=actor.workspace_id, role=Role.VIEWER)
        with pytest.raises(Forbidden), database.workspace_scope(viewer) as session:
            batches.create_batch(session, viewer, campaign_id=campaign.id, spec=make_spec())

    def test_a_campaign_of_another_workspace_is_not_found(
        self, database: Database, campaign: Campaign
    ) -> None:
        with database.system_scope() as session:
            stranger = Actor(workspace_id=make_workspace(session).id, role=Role.OWNER)
            # The system's session sees every workspace: the service's own filter must hold.
            with pytest.raises(NotFound):
                batches.create_batch(session, stranger, campaign_id=campaign.id, spec=make_spec())


class TestUpload:
    def test_each_row_of_an_upload_becomes_a_variant(
        self, database: Database, actor: Actor, campaign: Campaign, storage: Storage
    ) -> None:
        table = (
            "row_id,place,who,where,sku\n"
            "r1,paris,kids,a beach,A-1\n"
            "r2,tokyo,runners,a meadow,A-2\n"
            "r3,new york,kids,a meadow,A-3\n"
        )
        with database.workspace_scope(actor) as session:
            upload = uploads.create_upload(
                session,
                actor,
                storage,
                campaign_id=campaign.id,
                filename="rows.csv",
                stream=io.BytesIO(table.encode()),
            )
        spec = make_spec(
            parameters=tuple(
                SpecParameter(name=name, kind=name, column=column)  # type: ignore[arg-type]
                for name, column in (
                    ("geography", "place"),
                    ("audience", "who"),
                    ("backdrop", "where"),
                )
            ),
            mode=ExpansionMode.ZIP,
            row_count=upload.row_count,
            row_id_column="row_id",
        )
        with database.workspace_scope(actor) as session:
            batch = batches.create_batch(
                session, actor, campaign_id=campaign.id, spec=spec, upload_id=upload.id
            )
        call(database, actor, batches.launch_batch, batch.id)
        for _ in range(2):
            with database.system_scope() as session:
                expanding.expand_chunk(session, batch.id, chunk_size=2)
        views = call(database, actor, batches.list_variants, batch.id)
        assert [view.variant.prompt for view in views] == [
            "a red sneaker on a beach, in paris, for kids",
            "a red sneaker on a meadow, in tokyo, for runners",
            "a red sneaker on a meadow, in new york, for kids",
        ]
        assert [view.variant.row_id for view in views] == ["r1", "r2", "r3"]
        assert views[1].variant.passthrough == {"sku": "A-2"}

    def test_every_empty_cell_of_a_column_chosen_by_hand_is_named_at_once(
        self, database: Database, actor: Actor, campaign: Campaign, storage: Storage
    ) -> None:
        table = "place,who,where\nparis,,a beach\ntokyo,kids,a meadow\noslo,kids,\n"
        with database.workspace_scope(actor) as session:
            upload = uploads.create_upload(
                session,
                actor,
                storage,
                campaign_id=campaign.id,
                filename="rows.csv",
                stream=io.BytesIO(table.encode()),
            )
            # Its names are not the campaign's, so it could as well be a row of values.
            answers = {"header": "names"}
            uploads.answer_questions(session, actor, storage, upload.id, answers=answers)
        chosen = {"geography": "place", "audience": "who", "backdrop": "where"}
        spec = make_spec(
            parameters=tuple(
                SpecParameter(name=name, kind=name, column=column)  # type: ignore[arg-type]
                for name, column in chosen.items()
            ),
            mode=ExpansionMode.ZIP,
            row_count=upload.row_count,
        )
        with pytest.raises(TableError) as caught, database.workspace_scope(actor) as session:
            batches.create_batch(
                session, actor, campaign_id=campaign.id, spec=spec, upload_id=upload.id
            )
        places = [(item.row, item.line, item.column) for item in caught.value.findings]
        assert places == [(1, 2, "who"), (3, 4, "where")]


class TestSteering:
    def test_a_batch_can_be_launched_once(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create()
        call(database, actor, batches.launch_batch, batch.id)
        with pytest.raises(Conflict, match="expanding cannot be launched"):
            call(database, actor, batches.launch_batch, batch.id)

    def test_only_those_who_may_spend_money_launch(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create()
        viewer = Actor(workspace_id=actor.workspace_id, role=Role.VIEWER)
        with pytest.raises(Forbidden):
            call(database, viewer, batches.launch_batch, batch.id)
        assert state_of(database, batch.id) is BatchState.PREVIEWING

    def test_a_paused_batch_is_left_alone_until_it_is_resumed(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create()
        launch_and_expand(database, actor, batch.id)
        call(database, actor, batches.pause_batch, batch.id)
        with database.system_scope() as session:
            assert leases.claim(session, worker="worker-1") is None
        call(database, actor, batches.resume_batch, batch.id)
        finish(database)
        assert state_of(database, batch.id) is BatchState.COMPLETED

    def test_a_cancelled_batch_has_nothing_waiting_and_ends_at_once(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create()
        launch_and_expand(database, actor, batch.id)
        call(database, actor, batches.cancel_batch, batch.id)
        progress = call(database, actor, batches.get_progress, batch.id)
        assert progress.counts == {JobState.CANCELLED: COUNT}
        assert progress.ended_at is not None

    def test_a_cancelled_batch_can_be_launched_again_and_pays_nothing_twice(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        first = create()
        launch_and_expand(database, actor, first.id)
        with database.system_scope() as session:
            group = leases.claim(session, worker="worker-1", limit=5)
            assert group is not None
            for job in group.jobs:
                leases.finish_succeeded(
                    session,
                    job_id=job.job_id,
                    token=group.token,
                    artifact=make_artifact_files(),
                    usage=NewUsage(units=job.shared_units, render_s=0.1),
                )
        call(database, actor, batches.cancel_batch, first.id)
        again = call(database, actor, batches.duplicate_batch, first.id)
        assert again.spec == first.spec
        launch_and_expand(database, actor, again.id)
        progress = call(database, actor, batches.get_progress, again.id)
        assert progress.counts == {JobState.SUCCEEDED: 5, JobState.QUEUED: COUNT - 5}
        assert progress.cost_micros == 0

    def test_a_large_cancelled_batch_is_swept_in_steps_and_ends_with_its_last_render(
        self,
        database: Database,
        actor: Actor,
        create: Callable[..., Batch],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        some = functools.partial(completion.cancel_waiting, limit=4)
        monkeypatch.setattr(completion, "cancel_waiting", some)
        batch = create()
        launch_and_expand(database, actor, batch.id)
        with database.system_scope() as session:
            group = leases.claim(session, worker="worker-1", limit=2)
        assert group is not None
        call(database, actor, batches.cancel_batch, batch.id)
        with database.system_scope() as session:
            assert leases.claim(session, worker="worker-2") is None
            assert leases.renew(session, worker="worker-1").cancelled == {
                job.job_id for job in group.jobs
            }
        swept = []
        for _ in range(3):
            with database.system_scope() as session:
                swept.append(completion.sweep_stopped(session, limit=4))
        assert swept == [4, 2, 0]
        with database.system_scope() as session:
            assert session.get_one(Batch, batch.id).completed_at is None
        for job in group.jobs:
            with database.system_scope() as session:
                leases.finish_failed(
                    session,
                    job_id=job.job_id,
                    token=group.token,
                    code="cancelled",
                    message="",
                    is_retryable=False,
                )
        with database.system_scope() as session:
            completion.sweep_stopped(session)
        progress = call(database, actor, batches.get_progress, batch.id)
        assert progress.counts == {JobState.CANCELLED: COUNT}
        assert progress.ended_at is not None
        assert progress.state is BatchState.CANCELLED

    def test_failed_variants_can_be_tried_again(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create()
        launch_and_expand(database, actor, batch.id)
        finish(database, failures=3)
        progress = call(database, actor, batches.get_progress, batch.id)
        assert progress.state is BatchState.COMPLETED
        assert (progress.done, progress.failed) == (COUNT, 3)
        [failure] = call(database, actor, batches.list_failures, batch.id)
        assert (failure.message, failure.count) == ("The model computed NaN.", 3)

        assert call(database, actor, batches.retry_failed, batch.id) == 3
        assert state_of(database, batch.id) is BatchState.RUNNING
        finish(database)
        progress = call(database, actor, batches.get_progress, batch.id)
        assert progress.state is BatchState.COMPLETED
        assert progress.counts == {JobState.SUCCEEDED: COUNT}
        with pytest.raises(Conflict, match="nothing to try again"):
            call(database, actor, batches.retry_failed, batch.id)

    def test_the_bill_of_a_whole_batch_keeps_to_its_quote(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create(takes=3)
        launch_and_expand(database, actor, batch.id)
        finish(database)
        progress = call(database, actor, batches.get_progress, batch.id)
        assert 0 < progress.cost_micros <= progress.quote.cost_micros
        # Each job is rounded down on its own.
        assert progress.quote.cost_micros - progress.cost_micros <= progress.total

    def test_a_running_batch_shows_its_pace(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create()
        launch_and_expand(database, actor, batch.id)
        finish(database)
        with database.system_scope() as session:
            # Twelve renders since the first of them was begun.
            twelve_seconds = func.make_interval(0, 0, 0, 0, 0, 0, 12)
            session.execute(update(Attempt).values(started_at=func.now() - twelve_seconds))
            session.execute(update(Batch).values(state=BatchState.RUNNING))
        progress = call(database, actor, batches.get_progress, batch.id)
        assert progress.rate_per_s == pytest.approx(1.0, abs=0.1)
        assert progress.eta_s == 0

    def test_batches_are_listed_newest_first_and_page_by_page(
        self, database: Database, actor: Actor, create: Callable[..., Batch], campaign: Campaign
    ) -> None:
        made = [create().id for _ in range(3)]
        with database.workspace_scope(actor) as session:
            first = batches.list_batches(session, actor, campaign_id=campaign.id, limit=2)
            rest = batches.list_batches(session, actor, limit=2, before=first[-1].id)
        assert [batch.id for batch in (*first, *rest)] == made[::-1]
