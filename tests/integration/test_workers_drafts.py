"""Drafts are finished by a worker with the real engine: no step is computed or paid twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import select, text

from app.access import Actor
from app.db import Database
from app.errors import StorageError
from app.models import Artifact, Batch, DraftState, JobState, RenderJob, Usage, Variant
from app.services import batches, draft_states, expanding, promotions
from app.services.drafts import with_drafts
from app.services.progress import binding_quote
from app.services.specs import SpecParameter, SpecSettings
from app.services.variant_views import VariantFilter
from app.storage import Storage
from engine.types import RenderSettings
from engine.units import decode_units
from tests.checkpoints import random_model_dir
from tests.factories import SETTINGS
from tests.integration.batch_tools import call
from tests.rendering import Run, wait_for

BACKDROPS = ("a beach", "a meadow", "a street")
Outcomes = list[Any]


@pytest.fixture(autouse=True)
def model_dir(monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = random_model_dir()
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(folder))
    return folder


class Recorder:
    """The real engine, which remembers what it yields."""

    def __init__(self) -> None:
        # Local import: torch takes seconds to load.
        from engine.config import EngineConfig
        from engine.engine import Engine

        self.results: Outcomes = []
        # The guard would render all of it again: what weights at random make keeps no promise.
        config = EngineConfig(device="cpu", model_dir=random_model_dir(), guard_every=0)
        self._engine = Engine(config)

    def generate(self, *args: Any, **options: Any) -> Any:
        for outcome in self._engine.generate(*args, **options):
            self.results.append(outcome)
            yield outcome

    def render(self, variant: Variant) -> np.ndarray:
        """A variant's frames from a run of its own, from the noise on."""
        # Local import: see above.
        from app.services.promoted import draft_of_row

        (result,) = self._engine.generate([draft_of_row(variant).to_request()])
        return result.frames


@pytest.fixture
def drafts(
    database: Database, actor: Actor, create: Callable[..., Batch], run: Run
) -> Callable[..., Batch]:
    """Has a batch of three drafts rendered."""

    def render(**settings: Any) -> Batch:
        values = {"backdrop": BACKDROPS, "geography": ("paris",), "audience": ("kids",)}
        parameters = tuple(
            SpecParameter(name=name, kind=name, values=given)  # type: ignore[arg-type]
            for name, given in values.items()
        )
        batch = create(
            parameters=parameters, settings=with_drafts(SpecSettings(**SETTINGS | settings))
        )
        finish(database, actor, batch, run)
        return batch

    return render


def finish(database: Database, actor: Actor, batch: Batch, run: Run) -> Outcomes:
    """Launch a batch and have a worker render all of it."""
    call(database, actor, batches.launch_batch, batch.id)
    with database.system_scope() as session:
        assert not expanding.expand_chunk(session, batch.id)
    engine = Recorder()
    worker = run(engine)
    wait_for(lambda: not live(database, batch.id), timeout_s=60.0)
    worker.stop()
    worker.join(10.0)
    return engine.results


def live(database: Database, batch_id: UUID) -> int:
    with database.system_scope() as session:
        states = session.scalars(select(RenderJob.state).where(RenderJob.batch_id == batch_id))
        return sum(state not in (JobState.SUCCEEDED, JobState.FAILED) for state in states)


def promote(
    database: Database, actor: Actor, batch: Batch, wanted: VariantFilter | None = None
) -> Batch:
    with database.workspace_scope(actor) as session:
        return promotions.create_promotion(session, actor, batch.id, wanted or VariantFilter())


def rows(database: Database, batch: Batch) -> list[Any]:
    """Variant, artifact and usage of each job of a batch, in order."""
    with database.system_scope() as session:
        return list(
            session.execute(
                select(Variant, Artifact, Usage)
                .join(RenderJob, RenderJob.variant_id == Variant.id)
                .join(Artifact, Artifact.id == RenderJob.artifact_id)
                .join(Usage, Usage.job_id == RenderJob.id)
                .where(Variant.batch_id == batch.id)
                .order_by(Variant.ordinal)
            )
        )


def quoted(database: Database, batch: Batch) -> Any:
    with database.system_scope() as session:
        return binding_quote(session, batch.id)


@pytest.mark.parametrize("profile", ["exact", "consistent"])
def test_finished_drafts_are_charged_their_remaining_steps_alone(
    database: Database,
    actor: Actor,
    storage: Storage,
    run: Run,
    drafts: Callable[..., Batch],
    profile: str,
) -> None:
    batch = drafts(profile=profile, num_inference_steps=8)
    with database.system_scope() as session:
        kept = session.scalars(select(DraftState)).all()
        assert draft_states.count_kept(session, batch.id).count == len(BACKDROPS)
    assert {state.step for state in kept} == {4}
    assert all(storage.exists(state.storage_key) for state in kept)

    made = promote(database, actor, batch)
    quote = quoted(database, made)
    assert quote.details["drafts"] == {
        "step": 4, "variants": 3, "steps": 12, "anew": [],
        "cost_micros": quote.details["drafts"]["cost_micros"],
    }  # fmt: skip
    assert 0 < quote.details["drafts"]["cost_micros"] < quote.full_cost_micros
    finish(database, actor, made, run)
    done = rows(database, made)
    assert [row.Artifact.provenance["resumed"]["from_step"] for row in done] == [4, 4, 4]
    charged = sum(row.Usage.cost_micros for row in done)
    assert charged <= quote.cost_micros
    if profile == "exact":
        assert sum(row.Usage.units for row in done) == pytest.approx(quote.shared_units)
        assert charged >= quote.cost_micros - len(done), "rounded down one by one"
        # The decode of what it shows is all that a draft costs besides.
        both = quote.shared_units + quoted(database, batch).shared_units
        decodes = len(done) * decode_units(RenderSettings.from_dict(done[0].Variant.settings))
        assert both == pytest.approx(quote.full_units + decodes)

    with database.system_scope() as session:
        assert draft_states.sweep(session, storage, limit_bytes=1e9) == len(BACKDROPS)
    assert not any(storage.exists(state.storage_key) for state in kept)


def test_an_exact_render_from_a_draft_is_that_from_the_noise_bit_for_bit(
    database: Database, actor: Actor, run: Run, drafts: Callable[..., Batch]
) -> None:
    batch = drafts()
    with database.system_scope() as session:
        ids = session.scalars(select(Variant.id).order_by(Variant.ordinal)).all()
    made = promote(database, actor, batch, VariantFilter(ids=[ids[1]]))
    (result,) = finish(database, actor, made, run)
    (done,) = rows(database, made)
    assert done.Variant.draft_id == ids[1]
    assert done.Artifact.provenance["rendered_as"] == "exact"
    assert done.Artifact.provenance["resumed"] == {"from_step": 2}
    np.testing.assert_array_equal(result.frames, Recorder().render(done.Variant))


def test_a_state_that_is_lost_after_the_quote_costs_what_was_quoted_and_is_told(
    database: Database, actor: Actor, storage: Storage, run: Run, drafts: Callable[..., Batch]
) -> None:
    made = promote(database, actor, drafts())
    with database.system_scope() as session:
        session.execute(text("DELETE FROM draft_states"))
    finish(database, actor, made, run)
    quote, done = quoted(database, made), rows(database, made)
    assert [row.Artifact.provenance["resumed"] for row in done] == [
        {"from_step": 0, "because": "the state of the draft is not kept any more"}
    ] * 3
    assert sum(row.Usage.units for row in done) == pytest.approx(quote.full_units)
    assert sum(row.Usage.cost_micros for row in done) <= quote.cost_micros < quote.full_cost_micros


def test_a_draft_whose_state_cannot_be_stored_is_finished_from_the_start_at_the_full_price(
    database: Database,
    actor: Actor,
    storage: Storage,
    run: Run,
    drafts: Callable[..., Batch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = storage.put_file

    def refuse_drafts(key: str, *args: Any, **options: Any) -> None:
        if "/drafts/" in key:
            raise StorageError(f"{key} is refused")
        store(key, *args, **options)

    monkeypatch.setattr(storage, "put_file", refuse_drafts)
    batch = drafts()
    assert len(rows(database, batch)) == len(BACKDROPS), "the drafts themselves are there"
    quote = quoted(database, promote(database, actor, batch))
    assert quote.details["drafts"]["anew"] == [0, 1, 2]
    assert quote.cost_micros == quote.full_cost_micros
