"""The most that a batch may spend: kept at the claim, told of, raised; by page and by API."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import select

from app.access import Actor
from app.db import Database
from app.errors import Conflict, InvalidInput
from app.models import (
    Batch,
    BatchState,
    JobState,
    PauseReason,
    RenderJob,
    WebhookEvent,
    WebhookEventType,
    Workspace,
)
from app.services import batches, expanding, leases
from app.services.counters import count_jobs
from app.services.leases import ClaimedGroup
from app.services.progress import binding_quote
from tests.api import Api, make_key
from tests.integration.batch_tools import call, finish
from tests.integration.test_web_campaigns import create_batch
from tests.web import Browser

pytestmark = pytest.mark.usefixtures("weights")
Launch = Callable[[float], Batch]


@pytest.fixture
def launch(database: Database, actor: Actor, create: Callable[..., Batch]) -> Launch:
    """A launched and expanded batch that may spend this part of its quote."""

    def launch(part: float) -> Batch:
        batch = create()
        with database.workspace_scope(actor) as session:
            cap = int(binding_quote(session, batch.id).cost_micros * part)
            batches.launch_batch(session, actor, batch.id, spend_cap_micros=cap)
        with database.system_scope() as session:
            assert not expanding.expand_chunk(session, batch.id)
        return read(database, batch.id)

    return launch


def read(database: Database, batch_id: UUID) -> Batch:
    with database.system_scope() as session:
        return session.get_one(Batch, batch_id)


def spent(database: Database, batch_id: UUID) -> int:
    with database.system_scope() as session:
        return count_jobs(session, batch_id).cost_micros


def raise_cap(database: Database, actor: Actor, batch_id: UUID, cap_micros: int | None) -> Batch:
    with database.workspace_scope(actor) as session:
        return batches.set_spend_cap(session, actor, batch_id, spend_cap_micros=cap_micros)


def events(database: Database) -> list[dict[str, Any]]:
    with database.system_scope() as session:
        reached = WebhookEvent.event_type == WebhookEventType.BUDGET_REACHED
        return list(session.scalars(select(WebhookEvent.data).where(reached)))


def claim(database: Database, **options: Any) -> ClaimedGroup | None:
    with database.system_scope() as session:
        return leases.claim(session, worker="worker-1", **options)


def test_a_batch_stops_below_its_cap_and_says_so_once(launch: Launch, database: Database) -> None:
    batch = launch(0.4)
    cap = batch.spend_cap_micros
    assert cap is not None
    finish(database)
    assert 0 < spent(database, batch.id) <= cap
    stopped = read(database, batch.id)
    assert (stopped.state, stopped.pause_reason) == (BatchState.PAUSED, PauseReason.BUDGET)
    assert claim(database) is None
    [event] = events(database)
    assert event["spend_cap_micros"] == cap
    assert event["cost_micros"] == spent(database, batch.id)
    assert event["state"] == "paused"
    with database.system_scope() as session:
        states = set(session.scalars(select(RenderJob.state)))
    assert states == {JobState.SUCCEEDED, JobState.QUEUED}


def test_a_higher_cap_lets_the_batch_go_on_to_its_end(
    launch: Launch, database: Database, actor: Actor
) -> None:
    batch = launch(0.3)
    finish(database)
    first = spent(database, batch.id)
    assert raise_cap(database, actor, batch.id, batch.spend_cap_micros).state is BatchState.PAUSED
    going = raise_cap(database, actor, batch.id, 2 * (batch.spend_cap_micros or 0))
    assert (going.state, going.pause_reason) == (BatchState.RUNNING, None)
    finish(database)
    assert first < spent(database, batch.id) <= 2 * (batch.spend_cap_micros or 0)
    assert len(events(database)) == 2
    assert raise_cap(database, actor, batch.id, None).state is BatchState.RUNNING
    finish(database)
    assert read(database, batch.id).state is BatchState.COMPLETED


def test_a_capped_batch_is_not_resumed_but_may_be_cancelled(
    launch: Launch, database: Database, actor: Actor
) -> None:
    batch = launch(0.3)
    finish(database)
    with pytest.raises(Conflict, match="Raise the cap"):
        call(database, actor, batches.resume_batch, batch.id)
    call(database, actor, batches.cancel_batch, batch.id)
    assert read(database, batch.id).state is BatchState.CANCELLED


def test_what_is_in_flight_counts_in_full_until_it_has_ended(
    launch: Launch, database: Database, actor: Actor
) -> None:
    batch = launch(1.0)
    with database.system_scope() as session:
        rate = binding_quote(session, batch.id).rate_micros_per_unit
    first = claim(database, limit=1)
    assert first is not None
    price = int(first.jobs[0].shared_units * rate)
    raise_cap(database, actor, batch.id, price)
    # Another worker gets nothing, but the batch does not stop: the render may still fail.
    assert claim(database) is None
    assert read(database, batch.id).state is BatchState.RUNNING
    with database.system_scope() as session:
        leases.finish_failed(
            session,
            job_id=first.jobs[0].job_id,
            token=first.token,
            code="nan",
            message="It went wrong.",
            is_retryable=False,
        )
    second = claim(database)
    assert second is not None
    assert sum(int(job.shared_units * rate) for job in second.jobs) <= price


def test_two_claims_at_once_do_not_spend_the_same_rest(
    launch: Launch, database: Database, actor: Actor
) -> None:
    batch = launch(0.25)
    taken: list[ClaimedGroup | None] = []
    with database.system_scope() as session:
        taken.append(leases.claim(session, worker="worker-1"))
        other = threading.Thread(target=lambda: taken.append(claim(database)))
        other.start()
        other.join(0.5)
    other.join()
    with database.system_scope() as session:
        rate = binding_quote(session, batch.id).rate_micros_per_unit
    units = sum(job.shared_units for group in taken if group for job in group.jobs)
    assert 0 < int(units * rate) <= (batch.spend_cap_micros or 0)


def test_a_batch_that_is_paused_by_hand_stays_so_when_its_cap_changes(
    launch: Launch, database: Database, actor: Actor
) -> None:
    batch = launch(0.5)
    call(database, actor, batches.pause_batch, batch.id)
    assert raise_cap(database, actor, batch.id, None).state is BatchState.PAUSED
    assert call(database, actor, batches.resume_batch, batch.id).state is BatchState.RUNNING


@pytest.mark.parametrize("cap_micros", [0, -1, 10**18])
def test_a_cap_is_an_amount_above_nothing(
    create: Callable[..., Batch], database: Database, actor: Actor, cap_micros: int
) -> None:
    with pytest.raises(InvalidInput) as caught:
        raise_cap(database, actor, create().id, cap_micros)
    assert caught.value.field == "spend_cap_micros"


def test_a_cap_is_typed_at_the_launch_and_raised_on_the_page(
    editor: Browser, database: Database
) -> None:
    path = create_batch(editor)
    batch_id = UUID(path.rpartition("/")[2])
    assert "Spend at most" in editor.get(path).text
    editor.post(f"{path}/launch", {"spend_cap": "a lot"})
    assert read(database, batch_id).state is BatchState.PREVIEWING
    assert "is no amount" in editor.get(path).text
    editor.post(f"{path}/launch", {"spend_cap": "0.000001"})
    with database.system_scope() as session:
        assert not expanding.expand_chunk(session, batch_id)
    finish(database)
    stopped = editor.get(path).text
    assert "would take this batch above its spend cap" in stopped
    assert "Change the cap and go on" in stopped
    assert f"{path}/resume" not in stopped
    editor.post(f"{path}/spend-cap", {"spend_cap": "500"})
    assert read(database, batch_id).state is BatchState.RUNNING
    assert "The spend cap is changed. Going on." in editor.get(path).text


def test_the_api_caps_a_batch_when_it_is_made_and_later(
    app: Flask, database: Database, workspace: Workspace, editor: Browser
) -> None:
    create_batch(editor)
    with database.system_scope() as session:
        campaign_id = str(session.scalars(select(Batch.campaign_id)).one())
    api = Api(app, make_key(database, workspace))
    body = {"campaign_id": campaign_id, "spend_cap_micros": 1, "launch": True}
    made = api.made("/batches", body)
    assert (made["spend_cap_micros"], made["pause_reason"]) == (1, None)
    with database.system_scope() as session:
        assert not expanding.expand_chunk(session, UUID(made["id"]))
    finish(database)
    path = f"/batches/{made['id']}"
    stopped = api.get(path).json
    assert (stopped["state"], stopped["pause_reason"]) == ("paused", "budget")
    assert api.post(f"{path}/resume").status_code == 409
    answer = api.send("PUT", f"{path}/spend-cap", json={"spend_cap_micros": None}).json
    assert (answer["state"], answer["spend_cap_micros"]) == ("running", None)
    refused = api.send("PUT", f"{path}/spend-cap", json={"spend_cap_micros": 0})
    assert refused.status_code == 422
