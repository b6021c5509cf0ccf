"""`python -m bench.campaign`: render one campaign in every way, and say what each takes and keeps.

Cells (a way, a family) are kept in the work folder as they are done, so a run that was stopped,
or split with --only, goes on where it was; a change of weights or code starts anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from bench.campaign.choice import best_settings
from bench.campaign.families import MODEL_ID, Family
from bench.campaign.measure import exact_clips, measure_quality, measure_setting, measure_speed
from bench.campaign.plain import Side
from bench.campaign.report import write_report
from bench.campaign.schedule import Schedule, full_schedule, quick_schedule
from bench.campaign.sheet import write_sheet
from bench.campaign.sides import Bench
from engine.registry import checkpoint_folder, default_settings, weights_fingerprint
from engine.tiny.classifier import Judge, load_judge
from engine.types import QualityProfile

ROOT = Path(__file__).parents[2]
# Speed of an engine whose renders are wrong says nothing.
TESTS = (
    "tests/unit/engine/test_engine.py",
    "tests/unit/engine/test_tree_runner.py",
    "tests/unit/engine/test_tree_trouble.py",
    "tests/unit/engine/test_fast_math.py",
)


def main() -> None:
    """Measure what is missing, and write the report."""
    options = _options()
    torch.set_num_threads(options.threads)
    check_tests(options.work)
    cells = Cells(options.work, options)
    bench = Bench()
    if options.sheet:
        profile = QualityProfile(options.sheet)
        print(write_sheet(bench, options.images, work=cells.exact_folder, profile=profile))
        return
    run = Run(bench, cells, options)
    header = {"main": run.schedule.main.key, "sides": run.measure(), "facts": run.facts()}
    print(write_report(cells.values, header=header, folder=options.out, images=options.images))


class Run:
    """Fills the cells of one schedule."""

    def __init__(self, bench: Bench, cells: Cells, options: argparse.Namespace) -> None:
        self.schedule: Schedule = quick_schedule() if options.quick else full_schedule()
        self._bench = bench
        self._judge: Judge = load_judge(checkpoint_folder(MODEL_ID) / "judge")
        self._cells = cells
        self._options = options

    def measure(self) -> list[str]:
        """Measure what is asked for; the names of the sides in the order of the report.

        Of each peer the best setting is measured in full: the fastest of the sweep that stays as
        close to the exact renders as `faithful` promises.
        """
        baselines, profiles = self._bench.baselines(), self._bench.profiles()
        for side in filter(self._is_asked, (*baselines, *profiles)):
            self._fill_side(side)
        peers = self.schedule.swept(self._bench.peers())
        for side in filter(self._is_asked, peers):
            self._cells.fill("sweep", side.name, self.schedule.sweep.key, partial(self._try, side))
        names = best_settings(self._cells.values, peers, sweep=self.schedule.sweep.key)
        chosen = [side for side in peers if side.name in names[: self.schedule.max_peers]]
        for side in filter(self._is_asked, chosen):
            self._fill_side(side)
        return [side.name for side in (*baselines, *chosen, *profiles)]

    def facts(self) -> dict[str, Any]:
        """What the report says of the circumstances."""
        settings = default_settings(MODEL_ID)
        return {
            "machine": f"{_processor()}, {self._options.threads} thread(s)",
            "seconds": f"{self._options.clock} time; {self.schedule.words(self._options.runs)}",
            "model": f"{MODEL_ID}, weights {weights_fingerprint(MODEL_ID)[:12]}",
            "settings": f"{settings.width}x{settings.height}, {settings.num_frames} frames,"
            f" {settings.num_inference_steps} steps, guidance {settings.guidance_scale:g}",
            "quality": self.schedule.quality_words(),
            "code": _code_hash("engine", "bench"),
            "versions": ", ".join(_versions()),
            "date": time.strftime("%Y-%m-%d"),
        }

    def _is_asked(self, side: Side) -> bool:
        only = self._options.only
        return not only or any(part in side.name for part in only)

    def _fill_side(self, side: Side) -> None:
        for family, runs in self.schedule.speed(side, runs=self._options.runs):
            self._cells.fill(
                "speed",
                side.name,
                family.key,
                partial(
                    measure_speed,
                    side,
                    self.schedule.timed(side, family),
                    runs=runs,
                    clock=self._options.clock,
                ),
            )
        for family in self.schedule.quality_of(side):
            self._cells.fill("quality", side.name, family.key, partial(self._judged, side, family))

    def _judged(self, side: Side, family: Family) -> Any:
        exact = exact_clips(self._bench.plain, family, self._cells.exact_folder)
        return measure_quality(side, family, exact=exact, judge=self._judge)

    def _try(self, side: Side) -> Any:
        family = self.schedule.sweep
        exact = exact_clips(self._bench.plain, family, self._cells.exact_folder)
        return measure_setting(side, family, exact=exact, clock=self._options.clock)


def check_tests(work: Path) -> None:
    """Refuse to measure an engine whose tests fail; the same code is not tested twice."""
    passed = work / f"tests-passed-{_code_hash('engine')}"
    if passed.exists():
        return
    print("Running the engine's tests first …", file=sys.stderr)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *TESTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise SystemExit(
            "The engine's tests fail, so no speed is measured:\n" + run.stdout[-3000:] + run.stderr
        )
    work.mkdir(parents=True, exist_ok=True)
    passed.touch()


class Cells:
    """What was measured, by "kind|side|family", kept in a file after each cell."""

    def __init__(self, work: Path, options: argparse.Namespace) -> None:
        key = f"{weights_fingerprint(MODEL_ID)[:12]}-{_code_hash('engine', 'bench')}"
        # Exact renders depend on the weights alone.
        self.exact_folder = work / weights_fingerprint(MODEL_ID)[:12]
        self._path = work / f"cells-{key}-{options.clock}-{options.threads}.json"
        self.values: dict[str, Any] = {}
        if self._path.exists() and not options.fresh:
            self.values = json.loads(self._path.read_text(encoding="utf-8"))

    def fill(self, kind: str, name: str, family: str, measure: Callable[[], Any]) -> None:
        """Measure a cell unless it is there; a way that refuses is noted with its reason."""
        key = f"{kind}|{name}|{family}"
        if key in self.values:
            return
        began = time.perf_counter()
        try:
            self.values[key] = measure()
        except Exception as error:  # caches refuse models in many ways, and that is a result
            if name.startswith(("plain", "Adloom")):
                raise
            reason = f"{type(error).__name__}: {error}"
            self.values[key] = {"refused": " ".join(reason.split())[:200]}
        print(f"{time.perf_counter() - began:7.1f} s  {key}", file=sys.stderr, flush=True)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self.values), encoding="utf-8")


def _versions() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    for name in ("torch", "diffusers", "transformers", "cache-dit"):
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name} not installed"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _code_hash(*folders: str) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "tiny" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.campaign", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="4 variants, one prompt and seed, one setting of each peer",
    )
    parser.add_argument("--only", nargs="*", help="only ways whose names hold one of these words")
    parser.add_argument(
        "--runs", type=int, default=3, help="runs of the main speed cells (default 3)"
    )
    parser.add_argument("--threads", type=int, default=1, help="processor threads (default 1)")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a machine that is shared"
    )
    parser.add_argument("--fresh", action="store_true", help="measure cells again that are kept")
    parser.add_argument("--work", type=Path, default=ROOT / ".adloom" / "bench")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument(
        "--sheet",
        nargs="?",
        const=QualityProfile.CONSISTENT.value,
        choices=[each.value for each in QualityProfile],
        help="write the contact sheet of a profile instead (default consistent)",
    )
    options = parser.parse_args()
    if options.runs < 1 or options.threads < 1:
        parser.error("--runs and --threads must be 1 or more")
    return options


if __name__ == "__main__":
    main()
