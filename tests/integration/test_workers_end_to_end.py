"""From a launched batch to playable files: the real worker application and the real engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import av
import pytest
import redis
from sqlalchemy import select

from app.access import Actor
from app.config import Config
from app.db import Database
from app.models import Artifact, Batch, BatchState, ExpansionMode, Quote, Usage
from app.services import batches, calibrations
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from app.storage import Storage
from engine.types import RenderSettings
from tests.checkpoints import random_model_dir
from tests.factories import SETTINGS, make_campaign
from tests.worker_processes import wait_until, worker_processes

VALUES = {
    "backdrop": ["a beach", "a meadow", "a street"],
    "geography": ["paris"],
    "audience": ["kids"],
}
# Of its eight steps `draft` shares one between backdrops.
DRAFT = SETTINGS | {"profile": "draft", "num_inference_steps": 8}


@pytest.fixture
def model_dir(monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = random_model_dir()
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(folder))
    return folder


def test_a_launched_batch_becomes_playable_videos_planned_as_a_tree_at_the_quoted_price(
    config: Config,
    database: Database,
    storage: Storage,
    actor: Actor,
    redis_url: str,
    model_dir: Path,
    tmp_path: Path,
) -> None:
    redis.Redis.from_url(redis_url).flushall()
    connected = replace(config, redis_url=redis_url)
    with worker_processes(connected, tmp_path) as workers:
        workers.app = "workers.celery"
        process = workers.start(
            "render", "control", OMP_NUM_THREADS="1", ADLOOM_MODEL_DIR=str(model_dir)
        )
        batch_id = launch(database, actor)
        wait_until(lambda: state_of(database, batch_id) is BatchState.COMPLETED, timeout_s=90)
        assert process.terminate() < 10
    with database.system_scope() as session:
        artifacts = session.scalars(select(Artifact)).all()
        usage = session.scalars(select(Usage)).all()
        quote = session.scalars(select(Quote)).one()
        progress = batches.get_progress(session, actor, batch_id)
        known = calibrations.load(session, artifacts[0].provenance["weights_fingerprint"])
    assert len(artifacts) == 3
    # What was quoted; each row is rounded down to whole millionths by itself.
    charged = sum(row.cost_micros for row in usage)
    assert quote.cost_micros - len(usage) <= charged <= quote.cost_micros <= quote.full_cost_micros
    assert sorted(row.units for row in usage) == sorted(
        artifact.provenance["work_units"] for artifact in artifacts
    )
    assert progress.done == 3
    # The next quote knows how long a clip takes.
    pace = known.find_pace(RenderSettings.from_dict(DRAFT))
    assert pace is not None
    assert pace.step_seconds > 0
    assert pace.decode_seconds > 0
    for artifact in artifacts:
        with storage.open(artifact.storage_key) as stream, av.open(stream) as container:
            video = container.streams.video[0]
            frames = list(container.decode(video))
        assert video.codec_context.name == "h264"
        assert (video.width, video.height) == (SETTINGS["width"], SETTINGS["height"])
        assert len(frames) == SETTINGS["num_frames"]
        assert video.average_rate == SETTINGS["fps"]
    # Nothing was measured of this model before, so a pair of the three is checked exactly. Random
    # weights keep no promise, so the third, which shared a step, is rendered again without.
    (shared,) = [each for each in artifacts if not each.provenance["guard"]["sampled"]]
    assert quote.details["plan"]["terms"][0]["fork_steps"]["backdrop"] == 1
    guard = shared.provenance["guard"]
    assert (guard["screened"], guard["decision"]) == (True, "re-rendered")
    assert guard["latest_forks"]["backdrop"] == 0
    (own,) = shared.provenance["edges"]
    assert (own["start"], own["stop"], own["leaves"]) == (0, 8, 1)


def launch(database: Database, actor: Actor) -> object:
    with database.system_scope() as session:
        campaign = make_campaign(session, workspace_id=actor.workspace_id, values=VALUES)
    parameters = tuple(
        SpecParameter.model_validate({"name": name, "kind": name, "values": values})
        for name, values in VALUES.items()
    )
    spec = BatchSpec(
        parameters=parameters,
        mode=ExpansionMode.CARTESIAN,
        settings=SpecSettings.model_validate(DRAFT),
    )
    with database.workspace_scope(actor) as session:
        batch = batches.create_batch(session, actor, campaign_id=campaign.id, spec=spec)
        batches.launch_batch(session, actor, batch.id)
    return batch.id


def state_of(database: Database, batch_id: object) -> BatchState:
    with database.system_scope() as session:
        return session.get_one(Batch, batch_id).state
