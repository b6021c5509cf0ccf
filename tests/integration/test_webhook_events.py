"""Changes of batches, variants and reviews become events in the transaction that makes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from app.access import Actor
from app.config import Config
from app.db import Database
from app.errors import InvalidInput
from app.models import (
    Batch,
    BatchState,
    JobState,
    RenderJob,
    ReviewState,
    Variant,
    WebhookEventType,
    WebhookVariantEnd,
)
from app.services import (
    batches,
    completion,
    counters,
    expanding,
    leases,
    outbox,
    outbox_batches,
    outbox_variants,
    reviews,
)
from app.services.leases import NewUsage
from app.services.specs import BatchSpec
from tests.factories import SETTINGS, make_artifact_files, make_jobs
from tests.integration.webhook_tools import LOOPBACK, Desk


@pytest.fixture
def config(config: Config) -> Config:
    return replace(config, webhook_allowed_networks=LOOPBACK, base_url="https://adloom.example.com")


def data_of(desk: Desk, event_type: WebhookEventType) -> list[dict[str, Any]]:
    return [event.data for event in desk.events(event_type)]


def finish(database: Database, *, failing: int = 0, limit: int = 64) -> None:
    """Render what can be claimed at once; the first `failing` jobs fail."""
    with database.system_scope() as session:
        group = leases.claim(session, worker="worker-1", limit=limit)
    assert group is not None
    for number, job in enumerate(group.jobs):
        with database.system_scope() as session:
            ids: dict[str, Any] = {"job_id": job.job_id, "token": group.token}
            if number < failing:
                leases.finish_failed(
                    session, **ids, code="unusable", message="No.", is_retryable=False
                )
            else:
                leases.finish_succeeded(
                    session,
                    **ids,
                    artifact=make_artifact_files(),
                    usage=NewUsage(units=1.0, render_s=0.1),
                )


def test_the_end_of_a_batch_is_told_once_with_counts_and_links(
    desk: Desk, database: Database, batch: Batch
) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, ["a", "b", "c"])
        session.execute(
            update(Batch).values(variant_count=3, spec={"passthrough": {"order": "A-17"}})
        )
    assert data_of(desk, WebhookEventType.BATCH_COMPLETED) == []
    finish(database, failing=1)
    with database.system_scope() as session:
        completion.complete_finished(session)
    [data] = data_of(desk, WebhookEventType.BATCH_COMPLETED)
    assert data.pop("launched_at") is not None
    assert data.pop("completed_at") is not None
    assert data == {
        "batch_id": str(batch.id),
        "campaign_id": str(batch.campaign_id),
        "name": "First batch",
        "state": "completed",
        "counts": {
            "total": 3,
            "done": 3,
            "cancelled": 0,
            "failed": 1,
            "quarantined": 0,
            "succeeded": 2,
        },
        "cost_micros": 0,
        "currency": "USD",
        "passthrough": {"order": "A-17"},
        "links": {"dashboard": f"https://adloom.example.com/batches/{batch.id}"},
    }


def test_an_end_that_rolls_back_is_not_told(desk: Desk, database: Database, batch: Batch) -> None:
    with database.system_scope() as session:
        [job_id] = make_jobs(session, batch, ["a"])
        group = leases.claim(session, worker="worker-1")
    assert group is not None
    with pytest.raises(RuntimeError), database.system_scope() as session:
        assert leases.finish_failed(
            session, job_id=job_id, token=group.token, code="x", message="x", is_retryable=False
        )
        raise RuntimeError("the connection broke")
    assert data_of(desk, WebhookEventType.BATCH_COMPLETED) == []


def test_a_cancelled_batch_is_told_of_when_its_last_job_has_ended(
    desk: Desk, database: Database, batch: Batch, actor: Actor
) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, ["a"], ["b"])
        group = leases.claim(session, worker="worker-1", limit=1)
    assert group is not None
    with database.workspace_scope(actor) as session:
        batches.cancel_batch(session, actor, batch.id)
    assert data_of(desk, WebhookEventType.BATCH_CANCELLED) == []
    with database.system_scope() as session:
        leases.finish_failed(
            session,
            job_id=group.jobs[0].job_id,
            token=group.token,
            code="cancelled",
            message="",
            is_retryable=False,
        )
    for _ in range(2):
        with database.system_scope() as session:
            completion.sweep_stopped(session)
    [data] = data_of(desk, WebhookEventType.BATCH_CANCELLED)
    assert (data["state"], data["counts"]["cancelled"]) == ("cancelled", 2)
    assert data["completed_at"] is not None


def test_a_batch_cancelled_before_anything_ran_is_told_of_at_once(
    desk: Desk, database: Database, batch: Batch, actor: Actor
) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, ["a", "b"])
    with database.workspace_scope(actor) as session:
        batches.cancel_batch(session, actor, batch.id)
    with database.system_scope() as session:
        completion.sweep_stopped(session)
    assert len(data_of(desk, WebhookEventType.BATCH_CANCELLED)) == 1


def test_an_expansion_that_fails_is_told_with_its_reason(
    desk: Desk, database: Database, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> object:
        raise InvalidInput("The upload has changed.")

    monkeypatch.setattr(expanding, "_open_at_cursor", refuse)
    with database.system_scope() as session:
        session.execute(update(Batch).values(state=BatchState.EXPANDING, expanded_at=None))
    with database.system_scope() as session:
        assert not expanding.expand_chunk(session, batch.id)
    [data] = data_of(desk, WebhookEventType.BATCH_FAILED)
    assert (data["state"], data["failure"]) == ("failed", "The upload has changed.")
    with database.system_scope() as session:
        completion.sweep_stopped(session)
    assert data_of(desk, WebhookEventType.BATCH_CANCELLED) == []


def test_the_quarters_of_a_batch_are_told_once_each_and_the_highest_alone(
    desk: Desk, database: Database, batch: Batch
) -> None:
    desk.add_endpoint("http://127.0.0.1:9999/")
    with database.system_scope() as session:
        make_jobs(session, batch, *([str(number)] for number in range(8)))
        session.execute(update(Batch).values(variant_count=8))
    told = []
    for _ in range(8):
        finish(database, limit=1)
        for _ in range(2):
            with database.system_scope() as session:
                counters.roll_up(session)
                outbox_batches.announce_progress(session)
        told.append(
            [data["progress_percent"] for data in data_of(desk, WebhookEventType.BATCH_PROGRESSED)]
        )
    assert told == [[], [25], [25], [25, 50], [25, 50], [25, 50, 75], *[[25, 50, 75]] * 2]
    last = data_of(desk, WebhookEventType.BATCH_PROGRESSED)[-1]
    assert (last["counts"]["done"], last["counts"]["total"]) == (6, 8)


def test_progress_that_nobody_wants_is_not_written(
    desk: Desk, database: Database, batch: Batch
) -> None:
    desk.add_endpoint("http://127.0.0.1:9999/", event_types=["batch.completed"])
    with database.system_scope() as session:
        make_jobs(session, batch, ["a"], ["b"])
        session.execute(update(Batch).values(variant_count=2))
    finish(database, limit=1)
    with database.system_scope() as session:
        counters.roll_up(session)
        assert outbox_batches.announce_progress(session) == 0


def test_variants_are_told_in_bundles_to_those_who_ask(
    desk: Desk, database: Database, batch: Batch
) -> None:
    desk.add_endpoint("http://127.0.0.1:9999/", event_types=["variant.completed"])
    with database.system_scope() as session:
        make_jobs(session, batch, [str(number) for number in range(60)])
    finish(database, failing=2)
    with database.system_scope() as session:
        assert outbox_variants.bundle(session) == 60
        assert outbox_variants.bundle(session) == 0
    bundles = data_of(desk, WebhookEventType.VARIANT_COMPLETED)
    assert len(bundles) == 2
    variants = [variant for data in bundles for variant in data["variants"]]
    assert sorted(variant["ordinal"] for variant in variants) == list(range(60))
    states = [variant["state"] for variant in variants]
    assert (states.count("failed"), states.count("succeeded")) == (2, 58)
    failed = next(variant for variant in variants if variant["state"] == "failed")
    assert (failed["error_code"], failed["artifact_id"]) == ("unusable", None)
    for data in bundles:
        assert len(json.dumps(data)) < outbox.MAX_DATA_BYTES


def test_nothing_is_noted_of_variants_when_nobody_asks(
    desk: Desk, database: Database, batch: Batch
) -> None:
    desk.add_endpoint("http://127.0.0.1:9999/")
    with database.system_scope() as session:
        make_jobs(session, batch, ["a", "b"])
    finish(database)
    with database.system_scope() as session:
        assert session.scalar(select(func.count(WebhookVariantEnd.id))) == 0


def test_a_variant_with_a_long_row_is_told_without_it(
    desk: Desk, database: Database, batch: Batch
) -> None:
    desk.add_endpoint("http://127.0.0.1:9999/", event_types=["variant.completed"])
    with database.system_scope() as session:
        make_jobs(session, batch, ["short", "long"])
        session.execute(
            update(Variant)
            .where(Variant.prompt == "long")
            .values(passthrough={"notes": "x" * 30_000})
        )
        session.execute(
            update(Variant).where(Variant.prompt == "short").values(passthrough={"sku": "17"})
        )
    finish(database)
    with database.system_scope() as session:
        outbox_variants.bundle(session)
    [data] = data_of(desk, WebhookEventType.VARIANT_COMPLETED)
    assert [
        (variant["passthrough"], variant["is_passthrough_omitted"]) for variant in data["variants"]
    ] == [({"sku": "17"}, False), ({}, True)]


def test_the_last_decision_completes_a_review_once(
    desk: Desk, database: Database, batch: Batch, actor: Actor
) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, ["a", "b", "c"])
    finish(database, failing=1)
    with database.system_scope() as session:
        ids = session.scalars(
            select(RenderJob.variant_id).where(RenderJob.state == JobState.SUCCEEDED)
        ).all()
    approve, reject = ReviewState.APPROVED, ReviewState.REJECTED

    def decide(variant_id: UUID, state: ReviewState) -> int:
        with database.workspace_scope(actor) as session:
            reviews.set_review(session, actor, [variant_id], state)
        return len(data_of(desk, WebhookEventType.REVIEW_COMPLETED))

    assert decide(ids[0], approve) == 0
    assert decide(ids[0], reject) == 0
    assert decide(ids[1], approve) == 1
    assert decide(ids[1], reject) == 1, "a change of mind completes nothing"
    assert decide(ids[1], ReviewState.PENDING) == 1
    assert decide(ids[1], approve) == 2, "opened and closed again"
    first = data_of(desk, WebhookEventType.REVIEW_COMPLETED)[0]
    assert first["reviews"] == {"approved": 1, "rejected": 1}


def test_a_review_that_was_ahead_of_the_renders_completes_with_the_batch(
    desk: Desk, database: Database, batch: Batch, actor: Actor
) -> None:
    with database.system_scope() as session:
        make_jobs(session, batch, ["a"], ["b"])
    finish(database, limit=1)
    with database.system_scope() as session:
        [variant_id] = session.scalars(
            select(RenderJob.variant_id).where(RenderJob.state == JobState.SUCCEEDED)
        ).all()
    with database.workspace_scope(actor) as session:
        reviews.set_review(session, actor, [variant_id], ReviewState.APPROVED)
    assert data_of(desk, WebhookEventType.REVIEW_COMPLETED) == []
    finish(database, failing=1)
    assert len(data_of(desk, WebhookEventType.REVIEW_COMPLETED)) == 1


def test_an_event_with_a_key_is_written_once_in_a_workspace(
    desk: Desk, database: Database, actor: Actor
) -> None:
    emit: Callable[..., UUID | None] = outbox.emit
    with database.system_scope() as session:
        arguments = (session, actor.workspace_id, WebhookEventType.BATCH_EXPANDED, {})
        assert emit(*arguments, once_key="k") is not None
        assert emit(*arguments, once_key="k") is None
        assert emit(*arguments) is not None
        assert emit(*arguments) is not None


def test_an_event_that_is_too_large_to_be_sent_is_a_fault_of_ours(
    desk: Desk, database: Database, actor: Actor
) -> None:
    with (
        pytest.raises(ValueError, match="send links instead"),
        database.system_scope() as session,
    ):
        outbox.emit(
            session, actor.workspace_id, WebhookEventType.BATCH_EXPANDED, {"x": "é" * 10_000}
        )


def test_a_passthrough_that_every_message_would_carry_is_kept_short() -> None:
    values: dict[str, Any] = {"parameters": (), "mode": "cartesian", "settings": SETTINGS}
    assert BatchSpec(**values, passthrough={"order": "A-17"}).passthrough == {"order": "A-17"}
    with pytest.raises(ValueError, match="passthrough is longer than 2,000"):
        BatchSpec(**values, passthrough={"x": "y" * 2_000})
