"""The sharing tree on a batch's page, and a variant's way through it on its own page."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import select

from app.access import Actor, Role
from app.config import Config
from app.db import Database
from app.models import ExpansionMode, RenderJob, Workspace
from app.services import batches, expanding, leases
from app.services.leases import NewUsage
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from tests.factories import SETTINGS, VALUES, make_artifact_files, make_campaign
from tests.web import Browser, make_app, make_member

pytestmark = pytest.mark.usefixtures("weights")

# Of twenty steps `draft` shares four between backdrops and two between the others.
DRAFT = SETTINGS | {"profile": "draft", "num_inference_steps": 20}
EDGES = [
    {"start": 0, "stop": 2, "fixed": [], "texts": ["a red sneaker on"], "leaves": 12, "batch": 1},
    {"start": 2, "stop": 20, "fixed": ["backdrop"], "texts": ["a red sneaker on a beach"],
     "leaves": 1, "batch": 8},
]  # fmt: skip


@pytest.fixture
def batch_id(database: Database, actor: Actor) -> UUID:
    """A batch of twelve variants with one of them finished."""
    with database.system_scope() as session:
        campaign = make_campaign(session, workspace_id=actor.workspace_id)
    parameters = tuple(
        SpecParameter(name=name, kind=name, values=values)  # type: ignore[arg-type]
        for name, values in VALUES.items()
    )
    spec = BatchSpec(
        parameters=parameters, mode=ExpansionMode.CARTESIAN, settings=SpecSettings(**DRAFT)
    )
    with database.workspace_scope(actor) as session:
        batch = batches.create_batch(session, actor, campaign_id=campaign.id, spec=spec)
        batches.launch_batch(session, actor, batch.id)
    with database.system_scope() as session:
        expanding.expand_chunk(session, batch.id)
        group = leases.claim(session, worker="worker-1", limit=1)
        assert group is not None
        provenance = {
            "edges": EDGES,
            "forwards": {"computed": 9.5, "saved": {"shared_prefix": 1.5}},
            "guard": {"decision": "kept", "sampled": True, "projection": 0.91, "psnr": 33.2},
        }
        leases.finish_succeeded(
            session,
            job_id=group.jobs[0].job_id,
            token=group.token,
            artifact=make_artifact_files(provenance=provenance),
            usage=NewUsage(units=10.0, render_s=1.0),
        )
    return batch.id


@pytest.fixture
def viewer(config: Config, database: Database, workspace: Workspace) -> Browser:
    browser = Browser(make_app(config))
    browser.sign_in(make_member(database, workspace, Role.VIEWER))
    return browser


def test_the_batch_page_draws_the_tree_that_was_planned(viewer: Browser, batch_id: UUID) -> None:
    text = viewer.get(f"/batches/{batch_id}").text
    assert "once for 12" in text, "the root is shared by all"
    # Six pairs of geography and audience go on together until the backdrop matters.
    assert text.count("steps 3–4, once for 2") == 6
    assert text.count("steps 5–20, variant") == 12
    assert "units planned" in text
    assert "tree__bar" in viewer.get(f"/batches/{batch_id}/sharing").text


def test_the_page_of_a_variant_tells_its_way_and_what_it_spared(
    viewer: Browser, database: Database, batch_id: UUID
) -> None:
    with database.system_scope() as session:
        variant_id = session.scalars(
            select(RenderJob.variant_id).where(
                RenderJob.batch_id == batch_id, RenderJob.artifact_id.is_not(None)
            )
        ).one()
    text = viewer.get(f"/variants/{variant_id}").text
    assert "steps 1–2, shared by 12" in text
    assert "steps 3–20, its own; run beside 7 others" in text
    assert "1.5 (shared with its siblings)" in text
    assert "The promise was kept; compared with its exact render: change 0.91" in text
