"""What a worker renders is what the quote planned, whatever became of the rest of the group."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from app.access import Actor
from app.db import Database
from app.models import Campaign, ExpansionMode, RenderJob, Variant
from app.services import batches, expanding, leases
from app.services.expansion import SourceRow
from app.services.leases import NewUsage
from app.services.planning import PlanTerms, find_varying
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from engine.plan import plan
from engine.terms import known_terms
from tests.factories import SETTINGS, VALUES, make_artifact_files

pytestmark = pytest.mark.usefixtures("weights")

# 3 geographies × 2 backdrops × 2 audiences; the first varies slowest, so chunks hold one each.
PARAMETERS = ("geography", "backdrop", "audience")
# With ten steps `draft` forks a geography and an audience at 2 and a backdrop at 4.
DRAFT = SpecSettings(**SETTINGS | {"profile": "draft", "num_inference_steps": 10})
CHUNK = 4


def make_spec(**changes: Any) -> BatchSpec:
    parameters = tuple(
        SpecParameter(name=name, kind=name, values=VALUES[name])  # type: ignore[arg-type]
        for name in PARAMETERS
    )
    values = {"parameters": parameters, "mode": ExpansionMode.CARTESIAN, "settings": DRAFT}
    return BatchSpec(**values | changes)


@pytest.fixture
def batch_id(database: Database, actor: Actor, campaign: Campaign) -> UUID:
    """A launched batch, not expanded yet."""
    with database.workspace_scope(actor) as session:
        batch = batches.create_batch(session, actor, campaign_id=campaign.id, spec=make_spec())
        batches.launch_batch(session, actor, batch.id)
    return batch.id


def expand(database: Database, batch_id: UUID) -> None:
    more = True
    while more:
        with database.system_scope() as session:
            more = expanding.expand_chunk(session, batch_id, chunk_size=CHUNK)


def fork_steps(database: Database, batch_id: UUID) -> dict[int, dict[str, int]]:
    with database.system_scope() as session:
        rows = session.execute(
            select(Variant.ordinal, RenderJob.fork_steps)
            .join(RenderJob, RenderJob.variant_id == Variant.id)
            .where(RenderJob.batch_id == batch_id)
        )
        return {row.ordinal: row.fork_steps for row in rows}


def test_chunks_share_the_stem_of_the_whole_batch(database: Database, batch_id: UUID) -> None:
    expand(database, batch_id)
    steps = [*fork_steps(database, batch_id).values()]
    assert steps == [{"backdrop": 2, "audience": 1, "geography": 1}] * 12


def test_the_price_is_that_of_the_jobs(
    database: Database, actor: Actor, campaign: Campaign, batch_id: UUID
) -> None:
    with database.system_scope() as session:
        while expanding.expand_chunk(session, batch_id):
            pass
        quote = batches.get_progress(session, actor, batch_id).quote
        jobs = session.scalars(select(RenderJob).where(RenderJob.batch_id == batch_id)).all()
    assert sum(job.shared_units for job in jobs) == pytest.approx(quote.shared_units)
    assert quote.shared_units < quote.full_units * 0.9


def test_other_fork_steps_from_now_on_do_not_change_a_batch_that_is_priced(
    database: Database, batch_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> dict[str, int]:
        return {}

    monkeypatch.setattr("engine.terms.known_fork_steps", none)
    expand(database, batch_id)
    assert Counter(fork_steps(database, batch_id)[0].values()) == {1: 2, 2: 1}


def test_what_is_left_of_a_group_goes_the_way_that_was_planned(
    database: Database, batch_id: UUID
) -> None:
    expand(database, batch_id)
    planned = fork_steps(database, batch_id)
    with database.system_scope() as session:
        group = leases.claim(session, worker="worker-1")
        assert group is not None
        # All but the two last end; these come back, and what they share is all that is left.
        for job in group.jobs[:-2]:
            leases.finish_succeeded(
                session,
                job_id=job.job_id,
                token=group.token,
                artifact=make_artifact_files(),
                usage=NewUsage(units=1.0, render_s=0.1),
            )
        leases.release(session, token=group.token)
    left = {job.job_id for job in group.jobs[-2:]}
    with database.system_scope() as session:
        claims = [leases.claim(session, worker="worker-2") for _ in range(3)]
        (again,) = [each for each in claims if each and each.group_key == group.group_key]
        assert {job.job_id for job in again.jobs} == left
        ordinals = {
            row.id: row.ordinal
            for row in session.execute(
                select(RenderJob.id, Variant.ordinal).join(
                    Variant, Variant.id == RenderJob.variant_id
                )
            )
        }
    members = plan([job.to_request() for job in again.jobs]).groups[0].members
    assert {member.request_id: dict(member.fork_steps) for member in members} == {
        str(job_id): planned[ordinals[job_id]] for job_id in left
    }


def test_columns_vary_only_where_their_rows_do() -> None:
    spec = make_spec(
        parameters=(
            SpecParameter(name="geography", kind="geography", column="city"),  # type: ignore[arg-type]
            SpecParameter(name="backdrop", kind="backdrop", column="scene"),  # type: ignore[arg-type]
            SpecParameter(name="audience", kind="audience", values=("kids", "kids")),  # type: ignore[arg-type]
        ),
        mode=ExpansionMode.ZIP,
        row_count=2,
    )
    rows = [SourceRow(values={"geography": city, "backdrop": "a beach"}) for city in "ab"]
    assert find_varying(spec, lambda _: rows) == {"geography"}


def test_terms_are_read_back_as_they_were_written() -> None:
    settings = DRAFT.to_render_settings()
    terms = PlanTerms(
        varying=frozenset({"backdrop"}),
        by_settings={settings: known_terms(settings)},
    )
    assert PlanTerms.from_json(terms.to_json()) == terms
