"""What the control plane costs: expansion beside raw COPY, claim to finish beside Celery's no-ops.

`python -m bench.control_plane` measures both as ratios within one run.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import psycopg
from sqlalchemy import update

from app.access import Actor
from app.config import Config
from app.db import Database
from app.models import ExpansionMode, ParameterKind, Workspace
from app.paths import ROOT
from app.services import batches, campaigns, expanding, leases, workspaces
from app.services.leases import ClaimedGroup, NewArtifact, NewUsage
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from app.stack.commands import IGNORED_WARNING
from bench.null_tasks import QUEUE
from bench.null_tasks import app as celery
from bench.servers import fresh_servers

PROMPT: Final = "a red sneaker on {{ backdrop }}, in {{ geography }}, for {{ audience }}"
AUDIENCES: Final = 20
SETTINGS: Final = {
    "model_id": "adloom-tiny",
    "task": "t2v",
    "width": 224,
    "height": 128,
    "num_frames": 17,
    "fps": 12,
    "num_inference_steps": 30,
    "guidance_scale": 4.0,
    "profile": "consistent",
}
TABLES: Final = ("variants", "render_jobs")
CELERY_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A workspace with a campaign, in a database of its own."""

    config: Config
    database: Database
    actor: Actor
    campaign_id: UUID


def measure(*, variants: int, jobs: int, runs: int) -> str:
    """A Markdown table of medians: seconds on each side, and their ratio."""
    with fresh_servers() as config:
        bench = open_bench(config, variants)
        expansions = [_expand_and_copy(bench, variants) for _ in range(runs)]
        finished_per_s = claim_and_finish(bench, jobs)
        celery_per_s = jobs / _run_celery(config, jobs)
    ours, copies = (statistics.median(side) for side in zip(*expansions, strict=True))
    ratio = statistics.median(own / copy for own, copy in expansions)
    return "\n".join(
        [
            f"{platform.machine()}, Python {platform.python_version()}; one process on each side",
            "",
            "| what | Adloom | beside | ratio | goal |",
            "|---|---|---|---|---|",
            f"| expansion of about {variants:,} variants, prompts and jobs included | {ours:.2f} s "
            f"| COPY of the same rows: {copies:.2f} s | {ratio:.1f} | ≤ 2 |",
            f"| claim to finish, null engine, about {jobs:,} jobs | {finished_per_s:,.0f} jobs/s "
            f"| Celery no-op tasks: {celery_per_s:,.0f} tasks/s "
            f"| {finished_per_s / celery_per_s:.2f} | ≥ 3 |",
        ]
    )


def open_bench(config: Config, variants: int) -> Bench:
    """A workspace that may make so many variants, with a campaign."""
    database = Database(config)
    with database.system_scope() as session:
        workspace, owner = workspaces.create_workspace(
            session,
            name="Bench",
            owner_name="Bench",
            email="bench@example.com",
            password=uuid4().hex,
        )
        session.execute(
            update(Workspace)
            .where(Workspace.id == workspace.id)
            .values(max_variants_per_batch=2 * variants)
        )
        actor = workspaces.find_actor(session, owner.id, owner.session_version)
    assert actor is not None
    with database.workspace_scope(actor) as session:
        campaign = campaigns.create_campaign(
            session, actor, name="Bench", brief="", settings=SETTINGS, prompt=PROMPT
        )
    return Bench(config=config, database=database, actor=actor, campaign_id=campaign.id)


def _launch(bench: Bench, variants: int) -> UUID:
    """A batch of so many variants, or a few more, quoted and launched."""
    places = math.ceil(math.sqrt(variants / AUDIENCES))
    counts = {"backdrop": places, "geography": math.ceil(variants / AUDIENCES / places)}
    parameters = tuple(
        SpecParameter(
            name=name,
            kind=ParameterKind(name),
            values=tuple(f"{name} no. {n}" for n in range(count)),
        )
        for name, count in (counts | {"audience": AUDIENCES}).items()
    )
    spec = BatchSpec(
        parameters=parameters,
        mode=ExpansionMode.CARTESIAN,
        settings=SpecSettings.model_validate(SETTINGS),
        seed=time.monotonic_ns() % 2**31,
    )
    with bench.database.workspace_scope(bench.actor) as session:
        batch = batches.create_batch(session, bench.actor, campaign_id=bench.campaign_id, spec=spec)
        batches.launch_batch(session, bench.actor, batch.id)
    return batch.id


def _expand(bench: Bench, batch_id: UUID) -> float:
    start = time.perf_counter()
    has_more = True
    while has_more:
        with bench.database.system_scope() as session:
            has_more = expanding.expand_chunk(session, batch_id)
    return time.perf_counter() - start


def _expand_and_copy(bench: Bench, variants: int) -> tuple[float, float]:
    """Seconds of the expansion, and of COPY of the very rows that it wrote, into their tables."""
    batch_id = _launch(bench, variants)
    expanded_s = _expand(bench, batch_id)
    url = bench.config.database_system_url.replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        rows = {table: _dump(connection, table, batch_id) for table in TABLES}
        connection.execute("DELETE FROM variants WHERE batch_id = %s", [batch_id])
        connection.commit()
        start = time.perf_counter()
        for table, content in rows.items():
            with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
                copy.write(content)
        connection.commit()
        copied_s = time.perf_counter() - start
        connection.execute("DELETE FROM batches WHERE id = %s", [batch_id])
    return expanded_s, copied_s


def _dump(connection: psycopg.Connection, table: str, batch_id: UUID) -> bytes:
    query = f"COPY (SELECT * FROM {table} WHERE batch_id = '{batch_id}') TO STDOUT"  # noqa: S608
    found = io.BytesIO()
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        for block in copy:
            found.write(block)
    return found.getvalue()


def claim_and_finish(bench: Bench, jobs: int) -> float:
    """Jobs per second, claimed and finished as a worker does: each in a transaction of its own."""
    _expand(bench, _launch(bench, jobs))
    finished = 0
    start = time.perf_counter()
    for group in _claims(bench):
        for job in group.jobs:
            with bench.database.system_scope() as session:
                is_held = leases.finish_succeeded(
                    session,
                    job_id=job.job_id,
                    token=group.token,
                    artifact=_files(),
                    usage=NewUsage(units=job.shared_units, render_s=0.0),
                )
            assert is_held
            finished += 1
    return finished / (time.perf_counter() - start)


def _claims(bench: Bench) -> Iterator[ClaimedGroup]:
    while True:
        with bench.database.system_scope() as session:
            group = leases.claim(session, worker="bench")
        if group is None:
            return
        yield group


def _files() -> NewArtifact:
    """Files that nobody wrote: the store and the encoder are no part of the control plane."""
    name = uuid4().hex
    return NewArtifact(
        media_type="video/mp4",
        storage_key=f"bench/{name}.mp4",
        poster_key=f"bench/{name}.jpg",
        preview_key=f"bench/{name}.webp",
        sha256=name * 2,
        size_bytes=1,
        width=224,
        height=128,
        num_frames=17,
        fps=12.0,
        profile="consistent",
        provenance={},
    )


def _run_celery(config: Config, tasks: int) -> float:
    """Seconds that a Celery worker takes for tasks that wait for it and do nothing."""
    celery.conf.broker_url = config.redis_url
    nothing = celery.tasks["bench.nothing"]
    with celery.producer_pool.acquire(block=True) as producer:
        for _ in range(tasks):
            nothing.apply_async(producer=producer)
    command = [sys.executable, "-W", IGNORED_WARNING, "-m", "celery"]
    command += ["--app", "bench.null_tasks", "--quiet", "worker"]
    command += ["--pool", "solo", "--queues", QUEUE, "--without-gossip", "--without-mingle"]
    with tempfile.TemporaryDirectory(prefix="adloom-bench-") as folder:
        report = Path(folder) / "seconds"
        environment = {
            "BENCH_BROKER": config.redis_url,
            "BENCH_TASKS": str(tasks),
            "BENCH_REPORT": str(report),
        }
        worker = subprocess.Popen(
            [*command, "--loglevel", "WARNING"], cwd=ROOT, env=os.environ | environment
        )
        try:
            deadline = time.monotonic() + CELERY_TIMEOUT_S
            while not (report.exists() and report.read_text()):
                if worker.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the Celery worker did not do its tasks")
                time.sleep(0.1)
            return float(report.read_text())
        finally:
            worker.terminate()
            worker.wait()


def main() -> None:
    """Parse the options and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.control_plane", description=__doc__)
    parser.add_argument("--variants", type=int, default=10_000, help="default 10,000")
    parser.add_argument("--jobs", type=int, default=2_000, help="default 2,000")
    parser.add_argument("--runs", type=int, default=3, help="expansions (default 3)")
    options = parser.parse_args()
    if min(options.variants, options.jobs, options.runs) < 1:
        parser.error("--variants, --jobs and --runs must be 1 or more")
    print(measure(variants=options.variants, jobs=options.jobs, runs=options.runs))


if __name__ == "__main__":
    main()
