"""What reading the API takes while fifty read at once, beside a bare Flask route.

`python -m bench.api_readers` starts both under the same gunicorn settings and asks them in turn in
one run. Readers ask in a closed loop, so a latency is mostly the time that the others take before
one: what is compared is the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from app.config import Config
from app.paths import ROOT
from app.services import api_keys, batches
from app.stack.commands import WEB_THREADS
from bench.control_plane import Bench, claim_and_finish, open_bench
from bench.servers import fresh_environment
from bench.web_servers import ADLOOM, BARE, BARE_PATH, Reader, read_at_once, web_server

RESULTS: Final = ROOT / "bench" / "results"
NAME: Final = "api_readers"
BASELINE: Final = "bare Flask route"
# The limit counts, as always, and refuses nobody.
NO_LIMIT: Final = {"ADLOOM_API_REQUESTS_PER_MINUTE": "1000000000"}
WARM_UP: Final = 2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is asked: `requests` of each reader for each route in each round."""

    readers: int
    requests: int
    rounds: int
    variants: int


Rounds = list[dict[str, list[float]]]


def measure(plan: Plan) -> Rounds:
    """For each round the seconds of all answers by route, the bare one included."""
    with fresh_environment() as environment:
        bench = open_bench(Config.from_environment(environment), plan.variants)
        claim_and_finish(bench, plan.variants)
        paths, headers = _paths(bench), _headers(bench)
        bench.database.dispose()
        with (
            web_server(ADLOOM, environment | NO_LIMIT, ready="/readyz") as adloom,
            web_server(BARE, {}, ready=BARE_PATH) as bare,
        ):
            sides = {BASELINE: Reader(address=bare, path=BARE_PATH, headers={})} | {
                name: Reader(address=adloom, path=f"/v1{path}", headers=headers)
                for name, path in paths.items()
            }
            for reader in sides.values():
                read_at_once(reader, readers=plan.readers, requests=WARM_UP)
            return [
                {
                    name: read_at_once(reader, readers=plan.readers, requests=plan.requests)
                    for name, reader in sides.items()
                }
                for _ in range(plan.rounds)
            ]


def summarise(rounds: Rounds) -> list[dict[str, Any]]:
    """A row for each route: medians over the rounds, each ratio taken within its round."""
    rows = []
    for name in rounds[0]:
        row: dict[str, Any] = {"route": name, "answers": sum(len(each[name]) for each in rounds)}
        for share in (50, 95):
            own = [float(np.percentile(each[name], share)) for each in rounds]
            bare = [float(np.percentile(each[BASELINE], share)) for each in rounds]
            row[f"p{share}_ms"] = 1000 * statistics.median(own)
            ratios = [ours / theirs for ours, theirs in zip(own, bare, strict=True)]
            row[f"p{share}_ratio"] = statistics.median(ratios)
        rows.append(row)
    return rows


def to_markdown(rows: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> str:
    """The rows of `summarise` as a page, with the circumstances above them."""
    lines = [
        "# Readers of the API, all at once",
        "",
        *(f"- {name}: {value}" for name, value in facts.items()),
        "",
        "| route | p50, ms | to the bare route | p95, ms | to the bare route |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['route']} | {row['p50_ms']:.1f} | {row['p50_ratio']:.2f}x"
        f" | {row['p95_ms']:.1f} | {row['p95_ratio']:.2f}x |"
        for row in rows
    ]
    return "\n".join([*lines, ""])


def _paths(bench: Bench) -> dict[str, str]:
    """The main routes that read, with objects that exist, and without the `/v1`."""
    with bench.database.workspace_scope(bench.actor) as session:
        [batch] = batches.list_batches(session, bench.actor)
        [view] = batches.list_variants(session, bench.actor, batch.id, limit=1)
    assert view.artifact is not None, "every variant of the batch is finished"
    return {
        "the account": "/account",
        "usage by day": "/usage",
        "campaigns": "/campaigns",
        "one campaign": f"/campaigns/{bench.campaign_id}",
        "batches": "/batches",
        "one batch with its progress": f"/batches/{batch.id}",
        "a page of 50 variants": f"/batches/{batch.id}/variants?limit=50",
        "one variant": f"/variants/{view.variant.id}",
        "one artifact": f"/artifacts/{view.artifact.id}",
    }


def _headers(bench: Bench) -> dict[str, str]:
    with bench.database.workspace_scope(bench.actor) as session:
        _, secret = api_keys.issue_api_key(session, bench.actor, name="Bench")
    return {"Authorization": f"Bearer {secret}"}


def _facts(plan: Plan, *, load: float) -> dict[str, Any]:
    return {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} core(s) for servers and"
        f" readers together, load {load:.1f} before the run",
        "asked": f"{plan.readers} readers at once, {plan.requests} requests of each for each route,"
        f" {plan.rounds} round(s), a batch of about {plan.variants:,} finished variants",
        "server": f"gunicorn, 1 process of {WEB_THREADS} threads on each side",
        "versions": f"Python {platform.python_version()}, Flask {version('flask')},"
        f" gunicorn {version('gunicorn')}",
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    """Measure, print the table, and write it with its JSON."""
    options = _options()
    plan = Plan(
        readers=options.readers,
        requests=options.requests,
        rounds=options.rounds,
        variants=options.variants,
    )
    if options.quick:
        plan = replace(plan, requests=2, rounds=1, variants=60)
    load = os.getloadavg()[0]
    rows, facts = summarise(measure(plan)), _facts(plan, load=load)
    text = to_markdown(rows, facts)
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{NAME}.md").write_text(text, encoding="utf-8")
        document = json.dumps({"facts": facts, "rows": rows}, indent=1)
        (options.out / f"{NAME}.json").write_text(document, encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.api_readers", description=__doc__)
    parser.add_argument("--readers", type=int, default=50, help="at once (default 50)")
    parser.add_argument("--requests", type=int, default=10, help="of each reader (default 10)")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--variants", type=int, default=1_000, help="default 1,000")
    parser.add_argument(
        "--quick", action="store_true", help="shows that everything runs, and nothing to publish"
    )
    parser.add_argument("--out", type=Path, help="default bench/results, and nowhere with --quick")
    options = parser.parse_args()
    if min(options.readers, options.requests, options.rounds, options.variants) < 1:
        parser.error("--readers, --requests, --rounds and --variants must be 1 or more")
    if options.out is None and not options.quick:
        options.out = RESULTS
    return options


if __name__ == "__main__":
    main()
