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
from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from bench.campaign.families import BASES, MODEL_ID, PARAMETERS, Family
from bench.campaign.measure import exact_clips, measure_quality, measure_speed
from bench.campaign.report import write_report
from bench.campaign.sides import Bench, Side
from engine.registry import checkpoint_folder, default_settings, weights_fingerprint
from engine.tiny.classifier import Judge, load_judge

ROOT = Path(__file__).parents[2]
# Speed of an engine whose renders are wrong says nothing.
TESTS = (
    "tests/unit/engine/test_engine.py",
    "tests/unit/engine/test_tree_runner.py",
    "tests/unit/engine/test_fast_math.py",
)
# A plain loop takes as long for each variant; three of them tell.
LOOP_VARIANTS = 3
# Where siblings share nothing but a batch, one batch tells what each of any number takes.
BATCH_VARIANTS = 8
LOOPS = ("plain loop", "Adloom exact")
# Only these are measured at other sizes than the main one.
CURVE = ("Adloom faithful", "Adloom consistent", "Adloom fast")


def main() -> None:
    """Measure what is missing, and write the report."""
    options = _options()
    torch.set_num_threads(options.threads)
    check_tests(options.work)
    cells = Cells(options.work, options)
    bench, judge = Bench(), load_judge(checkpoint_folder(MODEL_ID) / "judge")
    sides = bench.sides()
    main_family, speed, quality = _families(quick=options.quick)
    for side in sides:
        if options.only and not any(part in side.name for part in options.only):
            continue
        for family in speed:
            if family == main_family or side.name in CURVE:
                cells.fill("speed", side, family, partial(_speed, options=options))
        is_ours = side.name.startswith("Adloom")
        for at, family in enumerate(quality):
            # Peers are judged on one base and seed for each parameter, Adloom on all of them.
            is_asked = is_ours or family.place == at // len(BASES) % len(BASES) or options.quick
            if side.name != "plain loop" and "guard" not in side.name and is_asked:
                cells.fill("quality", side, family, partial(_quality, bench, judge, cells))
    header = {
        "main": main_family.key,
        "sides": [side.name for side in sides],
        "facts": _facts(options, quality),
    }
    print(write_report(cells.values, header=header, folder=options.out))


def check_tests(work: Path) -> None:
    """Refuse to measure an engine whose tests fail; the same code is not tested twice."""
    passed = work / f"tests-passed-{_code_hash()}"
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
        key = f"{weights_fingerprint(MODEL_ID)[:12]}-{_code_hash()}"
        # Exact renders depend on the weights alone.
        self.exact_folder = work / weights_fingerprint(MODEL_ID)[:12]
        self._path = work / f"cells-{key}-{options.clock}-{options.threads}.json"
        self.values: dict[str, Any] = {}
        if self._path.exists() and not options.fresh:
            self.values = json.loads(self._path.read_text(encoding="utf-8"))

    def fill(self, kind: str, side: Side, family: Family, measure: Any) -> None:
        """Measure a cell unless it is there; a way that refuses is noted with its reason."""
        key = f"{kind}|{side.name}|{family.key}"
        if key in self.values:
            return
        began = time.perf_counter()
        try:
            self.values[key] = measure(side, family)
        except Exception as error:  # caches refuse models in many ways, and that is a result
            if side.name.startswith(("plain", "Adloom")):
                raise
            reason = f"{type(error).__name__}: {error}"
            self.values[key] = {"refused": " ".join(reason.split())[:200]}
        print(f"{time.perf_counter() - began:7.1f} s  {key}", file=sys.stderr, flush=True)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self.values), encoding="utf-8")


def _speed(side: Side, family: Family, *, options: argparse.Namespace) -> dict[str, Any]:
    if side.name in LOOPS:
        family = Family(varying="geography", size=LOOP_VARIANTS)
    elif not side.name.startswith("Adloom"):
        family = Family(varying="three", size=min(BATCH_VARIANTS, family.size))
    return measure_speed(side, family, runs=options.runs, clock=options.clock)


def _quality(bench: Bench, judge: Judge, cells: Cells, side: Side, family: Family) -> Any:
    exact = exact_clips(bench, family, cells.exact_folder)
    return measure_quality(side, family, exact=exact, judge=judge)


def _families(*, quick: bool) -> tuple[Family, list[Family], list[Family]]:
    """The main family, the families for speed, and those for quality.

    Bases go with seeds in pairs: three prompts, three seeds, and three times as few renders.
    """
    if quick:
        main_family = Family(varying="three", size=8)
        return main_family, [main_family], [Family(varying=n, size=4) for n in PARAMETERS[:2]]
    main_family = Family(varying="three", size=24)
    speed = [Family(varying="geography", size=24)]
    speed += [Family(varying="three", size=size) for size in (1, 4, 24, 64)]
    quality = [
        Family(varying=varying, size=4, place=place)
        for varying in (*PARAMETERS, "three")
        for place in range(len(BASES))
    ]
    return main_family, speed, quality


def _facts(options: argparse.Namespace, quality: list[Family]) -> dict[str, Any]:
    settings = default_settings(MODEL_ID)
    return {
        "machine": f"{_processor()}, {options.threads} thread(s)",
        "seconds": f"{options.clock} time, median of {options.runs} run(s)",
        "model": f"{MODEL_ID}, weights {weights_fingerprint(MODEL_ID)[:12]}",
        "settings": f"{settings.width}x{settings.height}, {settings.num_frames} frames,"
        f" {settings.num_inference_steps} steps, guidance {settings.guidance_scale:g}",
        "quality": f"{sum(family.size for family in quality)} variants of"
        f" {len({family.place for family in quality})} prompt(s) and seed(s), each against its own"
        " exact render; right: the judge reads the asked values (in exact renders)",
        "code": _code_hash(),
        "versions": ", ".join(_versions()),
        "date": time.strftime("%Y-%m-%d"),
    }


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


def _code_hash() -> str:
    digest = hashlib.sha256()
    for folder in ("engine", "bench"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "tiny" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.campaign", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="8 variants, one prompt and seed")
    parser.add_argument("--only", nargs="*", help="only ways whose names hold one of these words")
    parser.add_argument("--runs", type=int, default=3, help="runs of each speed cell (default 3)")
    parser.add_argument("--threads", type=int, default=1, help="processor threads (default 1)")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a machine that is shared"
    )
    parser.add_argument("--fresh", action="store_true", help="measure cells again that are kept")
    parser.add_argument("--work", type=Path, default=ROOT / ".adloom" / "bench")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    options = parser.parse_args()
    if options.runs < 1 or options.threads < 1:
        parser.error("--runs and --threads must be 1 or more")
    return options


if __name__ == "__main__":
    main()
