"""Which drafts can be finished in full quality, what that costs, and how long their states live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import delete, select, text, update

from app.access import Actor, Role
from app.db import Database
from app.errors import AppError, Conflict, Forbidden, InvalidInput, NotFound
from app.models import (
    Batch,
    BatchState,
    Campaign,
    DraftState,
    JobState,
    RenderJob,
    ReviewState,
    Variant,
    Workspace,
)
from app.services import (
    batches,
    draft_states,
    drafts,
    expanding,
    leases,
    promotions,
    reviews,
)
from app.services.draft_states import NewState
from app.services.drafts import with_drafts
from app.services.leases import ClaimedGroup, NewUsage
from app.services.progress import binding_quote
from app.services.promoted import find_draft_of, list_finished
from app.services.specs import SpecSettings
from app.services.variant_views import VariantFilter
from app.storage import Storage
from tests.api import Api, make_key
from tests.factories import SETTINGS, make_artifact_files, make_workspace
from tests.integration.batch_tools import COUNT, call, finish, launch_and_expand

pytestmark = pytest.mark.usefixtures("weights")
DRAFTS = with_drafts(SpecSettings(**SETTINGS))


@pytest.fixture
def drafted(
    database: Database, actor: Actor, create: Callable[..., Batch], storage: Storage, tmp_path: Path
) -> Batch:
    """A batch of drafts that were all rendered and kept, with a state each."""
    batch = create(settings=DRAFTS)
    launch_and_expand(database, actor, batch.id)
    end_drafts(database, storage, tmp_path)
    return batch


def end_drafts(database: Database, storage: Storage, folder: Path) -> None:
    """Render all drafts that wait, as a worker does."""
    file = folder / "a.state"
    file.write_bytes(b"state")
    while (group := claim(database)) is not None:
        for job in group.jobs:
            key = f"{job.workspace_id}/drafts/{job.job_id}"
            state = NewState(
                job_id=job.job_id, storage_key=key, variant_key=job.variant_key, step=2,
                size_bytes=5,
            )  # fmt: skip
            with database.system_scope() as session:
                assert draft_states.record(
                    session, state, token=group.token, keep_for=timedelta(days=7)
                )
                storage.put_file(key, file, media_type="application/octet-stream")
                leases.finish_succeeded(
                    session, job_id=job.job_id, token=group.token, artifact=make_artifact_files(),
                    usage=NewUsage(units=job.shared_units, render_s=0.1),
                )  # fmt: skip


def claim(database: Database) -> ClaimedGroup | None:
    with database.system_scope() as session:
        return leases.claim(session, worker="worker-1")


def variant_ids(database: Database, batch: Batch) -> list[UUID]:
    with database.system_scope() as session:
        query = select(Variant.id).where(Variant.batch_id == batch.id).order_by(Variant.ordinal)
        return list(session.scalars(query))


def promote(
    database: Database, actor: Actor, batch: Batch, ids: Sequence[UUID] | None = None
) -> Batch:
    with database.workspace_scope(actor) as session:
        return promotions.create_promotion(session, actor, batch.id, VariantFilter(ids=ids))


def refusal(database: Database, actor: Actor, batch: Batch, *ids: UUID) -> str:
    with pytest.raises(AppError) as caught:
        promote(database, actor, batch, ids or None)
    return caught.value.message


def count_rows(database: Database, batch: Batch) -> int:
    return len(variant_ids(database, batch))


def test_a_promotion_is_quoted_for_the_remaining_steps_and_nothing_is_rendered_yet(
    database: Database, actor: Actor, drafted: Batch
) -> None:
    made = promote(database, actor, drafted)
    with database.system_scope() as session:
        quote = binding_quote(session, made.id)
        first = binding_quote(session, drafted.id)
    assert made.state is BatchState.PREVIEWING
    assert made.spec["settings"]["draft_step"] is None
    assert (made.variant_count, quote.variant_count) == (COUNT, COUNT)
    done = quote.details["drafts"]
    assert (done["variants"], done["steps"], done["anew"]) == (COUNT, 2 * COUNT, [])
    # An exact render: what its draft took is all that is spared.
    assert quote.cost_micros + done["cost_micros"] == pytest.approx(quote.full_cost_micros, abs=2)
    assert first.details["finish_cost_micros"] == quote.cost_micros
    assert claim(database) is None


def test_approved_drafts_alone_are_finished_and_know_where_they_came_from(
    database: Database, actor: Actor, drafted: Batch
) -> None:
    ids = variant_ids(database, drafted)
    with database.workspace_scope(actor) as session:
        reviews.set_review(session, actor, ids[2:4], ReviewState.APPROVED)
        wanted = VariantFilter(review=ReviewState.APPROVED)
        made = promotions.create_promotion(session, actor, drafted.id, wanted)
    launch_and_expand(database, actor, made.id)
    group = claim(database)
    assert group is not None
    assert [job.draft_id for job in group.jobs] == ids[2:4]
    assert all(job.settings.draft_step is None for job in group.jobs)
    assert all(job.shared_units < job.work_units for job in group.jobs)
    with database.workspace_scope(actor) as session:
        variant = session.get_one(Variant, group.jobs[0].variant_id)
        draft = find_draft_of(session, actor, variant)
        assert draft is not None
        assert (draft.ordinal, variant.ordinal) == (2, 0)
        assert list_finished(session, actor, draft) == [variant]


def test_promoting_twice_gives_the_same_batch_and_leaves_out_what_was_launched(
    database: Database, actor: Actor, drafted: Batch
) -> None:
    ids = variant_ids(database, drafted)
    first = promote(database, actor, drafted, ids[:3])
    assert promote(database, actor, drafted, ids[:3]).id == first.id, "quoted already"
    other = promote(database, actor, drafted, ids[:4])
    assert other.variant_count == 4, "a quote alone binds nobody"
    launch_and_expand(database, actor, first.id)
    assert promote(database, actor, drafted, ids[:3]).id == first.id, "launched already"
    rest = promote(database, actor, drafted, ids[2:5])
    assert rest.variant_count == 2
    call(database, actor, batches.cancel_batch, first.id)
    assert promote(database, actor, drafted, ids[:3]).id != first.id, "cancelled: once more"


def test_a_draft_that_is_not_there_yet_or_failed_is_refused(
    database: Database, actor: Actor, create: Callable[..., Batch]
) -> None:
    batch = create(settings=DRAFTS)
    launch_and_expand(database, actor, batch.id)
    first, *others = variant_ids(database, batch)
    assert "variant 1 is still being rendered" in refusal(database, actor, batch, first)
    finish(database, failures=1)
    with database.system_scope() as session:
        failed = session.scalars(
            select(RenderJob.variant_id).where(RenderJob.state == JobState.FAILED)
        ).one()
    assert "is failed: The model computed NaN." in refusal(database, actor, batch, failed)
    assert promote(database, actor, batch, [each for each in others if each != failed])


def test_variants_of_other_batches_and_workspaces_are_refused(
    database: Database, actor: Actor, drafted: Batch, create: Callable[..., Batch]
) -> None:
    other = create(settings=DRAFTS, seed=5)
    launch_and_expand(database, actor, other.id)
    (mine, *_), (theirs, *_) = variant_ids(database, drafted), variant_ids(database, other)
    message = refusal(database, actor, drafted, mine, theirs)
    assert "Variant 1 is of another batch, “Batch 2”. Finish the drafts of one batch" in message
    with database.system_scope() as session:
        session.execute(
            update(Variant)
            .where(Variant.id == theirs)
            .values(settings=SETTINGS | {"model_id": "wan2.2-ti2v-5b"})
        )
    message = refusal(database, actor, drafted, mine, theirs)
    assert "and of another model (wan2.2-ti2v-5b)" in message
    with database.system_scope() as session:
        stranger = Actor(workspace_id=make_workspace(session).id, role=Role.OWNER)
    with pytest.raises(NotFound):
        promote(database, stranger, drafted, [mine])
    with pytest.raises(Forbidden):
        promote(database, Actor(workspace_id=actor.workspace_id, role=Role.VIEWER), drafted)


def test_a_batch_in_full_quality_has_nothing_to_finish(
    database: Database, actor: Actor, create: Callable[..., Batch], drafted: Batch
) -> None:
    batch = create()
    launch_and_expand(database, actor, batch.id)
    assert "These are no drafts" in refusal(database, actor, batch)
    nobody = VariantFilter(review=ReviewState.APPROVED)
    with database.workspace_scope(actor) as session, pytest.raises(InvalidInput, match="no draft"):
        promotions.create_promotion(session, actor, drafted.id, nobody)
    made = promote(database, actor, drafted)
    with database.workspace_scope(actor) as session, pytest.raises(Conflict, match="finish them"):
        batches.duplicate_batch(session, actor, made.id)


def test_drafts_of_other_weights_are_refused(
    database: Database, actor: Actor, drafted: Batch, weights: Path
) -> None:
    made = promote(database, actor, drafted)
    file = weights / "transformer" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    assert "The weights of" in refusal(database, actor, drafted)
    # Quoted before, launched after: the batch ends instead of rendering something else.
    call(database, actor, batches.launch_batch, made.id)
    with database.system_scope() as session:
        assert not expanding.expand_chunk(session, made.id)
        batch = session.get_one(Batch, made.id)
        assert batch.state is BatchState.FAILED
        assert "Make new drafts" in (batch.failure or "")


def test_what_is_not_kept_any_more_is_quoted_in_full(
    database: Database, actor: Actor, drafted: Batch
) -> None:
    ids = variant_ids(database, drafted)
    with database.system_scope() as session:
        session.execute(delete(DraftState).where(DraftState.variant_id == ids[0]))
        session.execute(
            update(DraftState)
            .where(DraftState.variant_id == ids[1])
            .values(expires_at=text("now() - interval '1 s'"))
        )
    made = promote(database, actor, drafted, ids[:3])
    with database.system_scope() as session:
        quote = binding_quote(session, made.id)
    assert quote.details["drafts"]["anew"] == [0, 1]
    assert quote.details["drafts"]["steps"] == 2
    launch_and_expand(database, actor, made.id)
    with database.system_scope() as session:
        jobs = session.execute(
            select(RenderJob.shared_units == RenderJob.work_units)
            .join(Variant, Variant.id == RenderJob.variant_id)
            .where(Variant.batch_id == made.id)
            .order_by(Variant.ordinal)
        )
        assert list(jobs.scalars()) == [True, True, False]


class TestApi:
    def test_drafts_are_ordered_and_finished_by_the_api(
        self,
        app: Flask,
        database: Database,
        workspace: Workspace,
        campaign: Campaign,
        storage: Storage,
        tmp_path: Path,
    ) -> None:
        api = Api(app, make_key(database, workspace))
        body = {"campaign_id": str(campaign.id), "drafts": True, "launch": True}
        batch = api.made("/batches", body)
        assert batch["settings"]["draft_step"] == 2
        path = f"/batches/{batch['id']}/promotions"
        with database.system_scope() as session:
            expanding.expand_chunk(session, UUID(batch["id"]))
        some = [each["id"] for each in api.get(path.replace("promotions", "variants")).json["data"]]
        assert api.post(path, {"variant_ids": some[:1]}).status_code == 409, "not rendered yet"
        end_drafts(database, storage, tmp_path)

        api.made("/reviews", {"variant_ids": some[:2], "state": "approved"})
        quoted = api.made(path, {})
        assert quoted["variant_count"] == 2
        assert quoted["state"] == "previewing"
        assert quoted["quote"]["drafts"]["steps"] == 4
        launched = api.made(path, {"launch": True})
        assert (launched["id"], launched["state"]) == (quoted["id"], "expanding")
        assert api.made(path, {"launch": True})["id"] == quoted["id"], "asked again"
        assert launched["drafts_batch_id"] == batch["id"]
        done = api.get(f"/batches/{quoted['id']}/variants").json["data"]
        assert [each["draft_id"] for each in done] == some[:2]


class TestStates:
    def sweep(self, database: Database, storage: Storage, *, limit_bytes: float = 1e9) -> int:
        with database.system_scope() as session:
            return draft_states.sweep(session, storage, limit_bytes=limit_bytes)

    def test_states_live_until_their_drafts_are_finished(
        self, database: Database, actor: Actor, storage: Storage, drafted: Batch
    ) -> None:
        assert self.sweep(database, storage) == 0
        ids = variant_ids(database, drafted)
        made = promote(database, actor, drafted, ids[:2])
        launch_and_expand(database, actor, made.id)
        with database.system_scope() as session:
            session.execute(update(DraftState).values(expires_at=text("now() - interval '1 s'")))
        # Two renders still wait for theirs.
        assert self.sweep(database, storage) == COUNT - 2
        with database.system_scope() as session:
            assert set(draft_states.find_files(session, ids)) == set(ids[:2])
        finish(database)
        assert self.sweep(database, storage) == 2

    def test_a_state_goes_with_its_draft(
        self, database: Database, storage: Storage, drafted: Batch
    ) -> None:
        with database.system_scope() as session:
            keys = session.scalars(select(DraftState.storage_key)).all()
            session.execute(delete(Batch).where(Batch.id == drafted.id))
        assert all(storage.exists(key) for key in keys)
        assert self.sweep(database, storage) == COUNT
        assert not any(storage.exists(key) for key in keys)

    def test_beyond_the_limit_the_oldest_go_first(
        self, database: Database, storage: Storage, drafted: Batch
    ) -> None:
        with database.system_scope() as session:
            ages = session.scalars(select(DraftState.id).order_by(DraftState.created_at)).all()
            kept = draft_states.count_kept(session, drafted.id)
        assert (kept.count, kept.size_bytes) == (COUNT, 5 * COUNT)
        assert self.sweep(database, storage, limit_bytes=5 * 3) == COUNT - 3
        with database.system_scope() as session:
            assert set(session.scalars(select(DraftState.id))) == set(ages[-3:])

    def test_who_lost_the_lease_notes_no_state(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create(settings=DRAFTS)
        launch_and_expand(database, actor, batch.id)
        group = claim(database)
        assert group is not None
        state = NewState(
            job_id=group.jobs[0].job_id, storage_key="a/drafts/b", variant_key="k", step=2,
            size_bytes=9,
        )  # fmt: skip
        with database.system_scope() as session:
            for token, noted in ((group.token + 1, False), (group.token, True)):
                keep_for = timedelta(days=1)
                assert draft_states.record(session, state, token=token, keep_for=keep_for) is noted


class TestDraftsFirst:
    def switch(self, database: Database, actor: Actor, batch: Batch, *, on: bool) -> Batch:
        with database.workspace_scope(actor) as session:
            return drafts.set_drafts(session, actor, batch.id, wants_drafts=on)

    def price(self, database: Database, batch: Batch) -> int:
        with database.system_scope() as session:
            return binding_quote(session, batch.id).cost_micros

    def test_a_quoted_batch_can_begin_with_drafts_and_go_back(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        batch = create()
        full = self.price(database, batch)
        changed = self.switch(database, actor, batch, on=True)
        assert changed.spec["settings"]["draft_step"] == 2
        assert self.price(database, batch) < full
        assert self.switch(database, actor, batch, on=False).spec == batch.spec
        assert self.price(database, batch) == full

    def test_after_previews_or_the_launch_it_is_too_late(
        self, database: Database, actor: Actor, create: Callable[..., Batch]
    ) -> None:
        # Local import: only this test makes previews.
        from app.services import previews

        batch = create()
        with database.workspace_scope(actor) as session:
            previews.render_preview(session, actor, batch.id, [0])
        with pytest.raises(Conflict, match="has previews"):
            self.switch(database, actor, batch, on=True)
        launch_and_expand(database, actor, batch.id)
        with pytest.raises(Conflict, match="has not been launched"):
            self.switch(database, actor, batch, on=True)

    def test_too_few_steps_have_no_draft(self) -> None:
        few: dict[str, Any] = SETTINGS | {"num_inference_steps": 2}
        with pytest.raises(InvalidInput, match="take 3 steps or more"):
            with_drafts(SpecSettings(**few))
