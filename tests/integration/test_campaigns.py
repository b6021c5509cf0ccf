"""Campaigns, prompt versions, parameters and reviews on a real database."""

from __future__ import annotations

from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from app.access import Actor, Role
from app.db import Database
from app.errors import Forbidden, InvalidInput, NotFound
from app.models import (
    Artifact,
    Batch,
    BatchCounter,
    BatchDelta,
    BatchState,
    Campaign,
    JobPurpose,
    JobState,
    Parameter,
    ParameterKind,
    PromptTemplate,
    RenderJob,
    Review,
    ReviewState,
    Variant,
)
from app.models.base import new_id
from app.services import campaign_list, campaigns, reviews
from app.services.parameters import ParameterInput
from app.services.prompts import PromptError
from tests.factories import PROMPT, SETTINGS, make_batch, make_campaign, make_workspace


def create(database: Database, actor: Actor, **options: Any) -> UUID:
    values = {"name": "Sneakers", "settings": SETTINGS, "prompt": PROMPT} | options
    with database.workspace_scope(actor) as session:
        return campaigns.create_campaign(session, actor, **values).id


def save(database: Database, actor: Actor, campaign_id: UUID, text: str, **more: str) -> int:
    with database.workspace_scope(actor) as session:
        return campaigns.save_prompt_template(
            session, actor, campaign_id, text=text, **more
        ).version


def parameters(database: Database, actor: Actor, campaign_id: UUID) -> list[Parameter]:
    with database.workspace_scope(actor) as session:
        return list(campaigns.get_campaign(session, actor, campaign_id).parameters)


def test_a_new_campaign_has_version_one_and_a_parameter_per_placeholder(
    database: Database, actor: Actor
) -> None:
    campaign_id = create(database, actor, brief=" Spring\r\nlaunch ")
    with database.workspace_scope(actor) as session:
        details = campaigns.get_campaign(session, actor, campaign_id)
    assert (details.template.version, details.template.text) == (1, PROMPT)
    assert details.campaign.brief == "Spring\nlaunch"
    assert [(item.name, item.kind, item.values) for item in details.parameters] == [
        ("backdrop", ParameterKind.BACKDROP, []),
        ("geography", ParameterKind.GEOGRAPHY, []),
        ("audience", ParameterKind.AUDIENCE, []),
    ]


def test_a_bad_prompt_leaves_no_campaign_behind(database: Database, actor: Actor) -> None:
    with pytest.raises(PromptError):
        create(database, actor, prompt="in {{ city")
    with database.workspace_scope(actor) as session:
        assert session.scalars(select(Campaign)).all() == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "  "}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"brief": "x" * 10_001}, "brief"),
        ({"settings": SETTINGS | {"width": 100}}, "size"),
        ({"settings": SETTINGS | {"num_frames": 6}}, "num_frames"),
        ({"settings": SETTINGS | {"model_id": "none"}}, "model_id"),
        ({"settings": {"model_id": "adloom-tiny"}}, "fps"),
        ({"settings": SETTINGS | {"colour": "red"}}, "colour"),
    ],
)
def test_wrong_input_names_its_field(
    database: Database, actor: Actor, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        create(database, actor, **changes)
    assert caught.value.field == field


def test_defaults_of_a_batch_are_kept_beside_the_render_settings(
    database: Database, actor: Actor
) -> None:
    defaults = {"mode": "sampled", "sample_size": 9, "seed": 7, "takes": 2}
    campaign_id = create(database, actor, settings=SETTINGS | defaults)
    with database.workspace_scope(actor) as session:
        assert campaigns.get_campaign(session, actor, campaign_id).campaign.settings == (
            SETTINGS | defaults
        )


def test_a_prompt_gets_a_new_version_only_when_it_changes(database: Database, actor: Actor) -> None:
    campaign_id = create(database, actor)
    assert save(database, actor, campaign_id, PROMPT) == 1
    assert save(database, actor, campaign_id, PROMPT + "!") == 2
    assert save(database, actor, campaign_id, PROMPT + "!", negative_text="blurry") == 3
    assert save(database, actor, campaign_id, PROMPT) == 4
    with database.workspace_scope(actor) as session:
        texts = session.scalars(select(PromptTemplate.text).order_by(PromptTemplate.version)).all()
    assert texts == [PROMPT, PROMPT + "!", PROMPT + "!", PROMPT]


def test_two_people_who_save_at_once_get_two_versions(database: Database, actor: Actor) -> None:
    campaign_id = create(database, actor)
    versions: list[int] = []
    threads = [
        Thread(target=lambda text=text: versions.append(save(database, actor, campaign_id, text)))
        for text in ("one {{ city }}", "two {{ city }}", "three {{ city }}")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(versions) == [2, 3, 4]


def test_an_edited_prompt_keeps_typed_values_and_drops_what_is_gone(
    database: Database, actor: Actor
) -> None:
    campaign_id = create(database, actor)
    inputs = [
        ParameterInput(name="backdrop", kind=ParameterKind.BACKDROP, values=["beach"]),
        ParameterInput(name="geography", kind=ParameterKind.GEOGRAPHY, values=[" Paris "]),
        ParameterInput(name="audience", kind=ParameterKind.CHOICE, values=[]),
        ParameterInput(name="ratio", kind=ParameterKind.SIZE, values=["16:9"]),
    ]
    with database.workspace_scope(actor) as session:
        campaigns.set_parameters(session, actor, campaign_id, inputs)
    save(database, actor, campaign_id, "{{ geography }} at {{ time }}", negative_text="{{ flaw }}")
    found = parameters(database, actor, campaign_id)
    assert [(item.name, item.kind, item.values) for item in found] == [
        ("geography", ParameterKind.GEOGRAPHY, ["Paris"]),
        ("time", ParameterKind.CHOICE, []),
        ("flaw", ParameterKind.CHOICE, []),
        ("ratio", ParameterKind.SIZE, ["16:9"]),
    ]


@pytest.mark.parametrize(
    ("names", "field", "message"),
    [
        (["backdrop", "geography"], "audience", "no parameter of that name"),
        (["backdrop", "geography", "audience", "city"], "city", "does not use"),
        (["backdrop", "geography", "audience", "backdrop"], "backdrop", "given twice"),
    ],
)
def test_parameters_must_fit_the_prompt(
    database: Database, actor: Actor, names: list[str], field: str, message: str
) -> None:
    campaign_id = create(database, actor)
    inputs = [ParameterInput(name=name, kind=ParameterKind.CHOICE) for name in names]
    with (
        pytest.raises(InvalidInput, match=message) as caught,
        database.workspace_scope(actor) as session,
    ):
        campaigns.set_parameters(session, actor, campaign_id, inputs)
    assert caught.value.field == field


def test_a_fault_in_the_negative_prompt_names_that_field(database: Database, actor: Actor) -> None:
    with pytest.raises(PromptError) as caught:
        create(database, actor, negative_prompt="no {{ x() }}")
    assert caught.value.field == "negative_prompt"


def test_a_campaign_is_updated_and_archived(database: Database, actor: Actor) -> None:
    campaign_id = create(database, actor)
    with database.workspace_scope(actor) as session:
        campaigns.update_campaign(session, actor, campaign_id, name="Shoes", brief="b")
    with database.workspace_scope(actor) as session:
        (summary,) = campaign_list.list_campaigns(session, actor)
        assert (summary.campaign.name, summary.campaign.brief) == ("Shoes", "b")
        assert summary.changed_at > summary.campaign.created_at
        campaigns.archive_campaign(session, actor, campaign_id)
        assert campaign_list.list_campaigns(session, actor) == []
        assert len(campaign_list.list_campaigns(session, actor, with_archived=True)) == 1


def test_a_viewer_reads_but_changes_nothing(database: Database, actor: Actor) -> None:
    campaign_id = create(database, actor)
    viewer = Actor(workspace_id=actor.workspace_id, role=Role.VIEWER)
    with database.workspace_scope(viewer) as session:
        assert campaigns.get_campaign(session, viewer, campaign_id)
        assert len(campaign_list.list_campaigns(session, viewer)) == 1
        for call in (
            lambda: campaigns.create_campaign(session, viewer, name="x", settings=SETTINGS),
            lambda: campaigns.update_campaign(session, viewer, campaign_id, name="x"),
            lambda: campaigns.save_prompt_template(session, viewer, campaign_id, text="x"),
            lambda: campaigns.set_parameters(session, viewer, campaign_id, []),
            lambda: campaigns.archive_campaign(session, viewer, campaign_id),
            lambda: reviews.set_review(session, viewer, [new_id()], ReviewState.APPROVED),
        ):
            with pytest.raises(Forbidden):
                call()


def test_a_campaign_of_another_workspace_is_not_found(database: Database, actor: Actor) -> None:
    campaign_id = create(database, actor)
    with database.system_scope() as session:
        other = Actor(workspace_id=make_workspace(session).id, role=Role.OWNER)
    # Also without row-level security: the services filter by themselves.
    for scope in (database.workspace_scope(other), database.system_scope()):
        with scope as session:
            assert campaign_list.list_campaigns(session, other) == []
            for call in (
                lambda: campaigns.get_campaign(session, other, campaign_id),
                lambda: campaigns.save_prompt_template(session, other, campaign_id, text="x"),
                lambda: campaigns.archive_campaign(session, other, campaign_id),
            ):
                with pytest.raises(NotFound):
                    call()


def add_variant(session: Any, batch: Batch, ordinal: int) -> Variant:
    variant = Variant(
        workspace_id=batch.workspace_id,
        batch_id=batch.id,
        ordinal=ordinal,
        values={},
        passthrough={},
        prompt="x",
        negative_prompt="",
        slots=[],
        seed=0,
        settings=SETTINGS,
        variant_key="k" * 64,
    )
    session.add(variant)
    session.flush()
    return variant


def add_result(session: Any, variant: Variant) -> UUID:
    artifact = Artifact(
        workspace_id=variant.workspace_id,
        variant_key=variant.variant_key,
        media_type="video/mp4",
        storage_key="a",
        poster_key="b",
        preview_key="c",
        sha256="0" * 64,
        size_bytes=1,
        width=1,
        height=1,
        num_frames=1,
        fps=1,
        profile="exact",
        provenance={},
    )
    session.add(artifact)
    session.flush()
    session.add(
        RenderJob(
            workspace_id=variant.workspace_id,
            batch_id=variant.batch_id,
            variant_id=variant.id,
            purpose=JobPurpose.FINAL,
            state=JobState.SUCCEEDED,
            affinity_key="a",
            group_key="g",
            plan_order=0,
            work_units=1,
            shared_units=1,
            artifact_id=artifact.id,
        )
    )
    session.flush()
    return artifact.id


def test_the_list_counts_what_is_rolled_up_and_what_is_not_and_shows_a_picture(
    database: Database, actor: Actor
) -> None:
    scope = {"workspace_id": actor.workspace_id, "purpose": JobPurpose.FINAL}
    with database.system_scope() as session:
        campaign = make_campaign(session, workspace_id=actor.workspace_id)
        empty = make_campaign(session, workspace_id=actor.workspace_id, name="Empty")
        batch = make_batch(session, campaign=campaign, variant_count=10)
        make_batch(session, campaign=campaign, variant_count=5, state=BatchState.PREVIEWING)
        artifact_id = add_result(session, add_variant(session, batch, 0))
        session.add_all(
            [
                BatchCounter(batch_id=batch.id, state="succeeded", count=4, **scope),
                BatchCounter(batch_id=batch.id, state="queued", count=3, **scope),
                BatchDelta(batch_id=batch.id, state="succeeded", count=2, **scope),
                BatchDelta(batch_id=batch.id, state="quarantined", count=1, **scope),
            ]
        )
    with database.workspace_scope(actor) as session:
        summaries = {
            item.campaign.id: item for item in campaign_list.list_campaigns(session, actor)
        }
    full = summaries[campaign.id]
    assert (full.total, full.done, full.failed, full.batch_count) == (10, 7, 1, 2)
    assert full.cover_artifact_id == artifact_id
    assert summaries[empty.id].cover_artifact_id is None
    assert (summaries[empty.id].total, summaries[empty.id].done) == (0, 0)


def test_reviews_are_set_for_many_and_changed_for_one(database: Database, actor: Actor) -> None:
    with database.system_scope() as session:
        campaign = make_campaign(session, workspace_id=actor.workspace_id)
        batch = make_batch(session, campaign=campaign)
        ids = [add_variant(session, batch, ordinal).id for ordinal in range(3)]
    with database.workspace_scope(actor) as session:
        assert reviews.set_review(session, actor, ids, ReviewState.APPROVED) == 3
    with database.workspace_scope(actor) as session:
        reviews.set_review(session, actor, ids[:1], ReviewState.REJECTED, " wrong shoe ")
    with database.workspace_scope(actor) as session:
        found = {item.variant_id: item for item in session.scalars(select(Review))}
    assert [found[id_].state for id_ in ids] == ["rejected", "approved", "approved"]
    assert found[ids[0]].reason == "wrong shoe"
    assert found[ids[0]].reviewed_by == actor.user_id
    assert found[ids[0]].updated_at > found[ids[1]].updated_at


def test_one_foreign_variant_stops_the_whole_review(database: Database, actor: Actor) -> None:
    with database.system_scope() as session:
        campaign = make_campaign(session, workspace_id=actor.workspace_id)
        mine = add_variant(session, make_batch(session, campaign=campaign), 0).id
        other = make_workspace(session)
        campaign = make_campaign(session, workspace_id=other.id)
        foreign = add_variant(session, make_batch(session, campaign=campaign), 0).id
    for scope in (database.workspace_scope(actor), database.system_scope()):
        with scope as session:
            with pytest.raises(NotFound, match="nothing was changed"):
                reviews.set_review(session, actor, [mine, foreign], ReviewState.APPROVED)
            assert session.scalars(select(Review)).all() == []
    with database.workspace_scope(actor) as session, pytest.raises(InvalidInput):
        reviews.set_review(session, actor, [], ReviewState.APPROVED)
