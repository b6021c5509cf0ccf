"""Writes docs/models.md from the results of tests: `python -m tests.model_table`.

Each cell is the outcome of one test, so the page cannot say what no test showed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.models.spec import TaskInputs
from engine.registry import get_model, list_models
from tests.family_cases import Case, all_cases

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "models.md"
TESTS = "tests/unit/engine/test_model_families.py"
# The columns, and the test that fills each.
COLUMNS = {
    "Renders as diffusers does": "test_tree_exact_equals_diffusers",
    "Cut and resumed": "test_segments_exact_equal_the_uncut_run",
    "Cancel between steps": "test_a_cancelled_render_stops_between_steps",
    "LoRA": "test_lora_changes_the_output_and_leaves_no_trace",
    "Variants share steps": "test_variants_share_steps",
}
HEAD = """# Models

The models that the engine's registry knows, what each task reads, and what tests found with a
small random checkpoint of each, made of the real classes of all its parts. This page is written
by `python -m tests.model_table`; every mark is the result of a test.

- *Renders as diffusers does*: the engine's `exact` render equals diffusers' own pipeline bit for
  bit, sound included.
- *Cut and resumed*: a run cut after any step and taken up again equals the uncut run bit for bit.
- *Cancel between steps*: a cancelled render stops after the step in hand.
- *LoRA*: two LoRAs change the output, each in its way, and leave no trace when they are taken out.
- *Variants share steps*: two variants run their first step once.

Small checkpoints show that the code is right, not how the pictures look: that takes the published
weights, which are not part of this repository. [Weights](weights.md) says how they come
here; only models whose weights are here are offered.
"""


class Outcomes:
    """A pytest plugin that keeps whether each test passed, by function and case."""

    def __init__(self) -> None:
        self.passed: dict[tuple[str, str], bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name, _, case = report.nodeid.rpartition("::")[2].rstrip("]").partition("[")
        if report.when == "call":
            self.passed[name, case] = report.passed


def page(passed: Mapping[tuple[str, str], bool]) -> str:
    """The page's text; a case without a result has a question mark."""
    lines = [HEAD, _row("Model", "Task", "Reads", *COLUMNS), _row(*["---"] * (3 + len(COLUMNS)))]
    for case in all_cases():
        marks = [_mark(passed.get((test, str(case)))) for test in COLUMNS.values()]
        inputs = get_model(case.model_id).inputs_of(case.task)
        lines.append(_row(f"`{case.model_id}`", str(case.task), _reads(case, inputs), *marks))
    lines += ["", "## Weights and licences", "", _row("Model", "Folder", "From", "Licence")]
    lines.append(_row(*["---"] * 4))
    for spec in list_models():
        hub = (
            f"[{spec.hub_id}](https://huggingface.co/{spec.hub_id})" if spec.hub_id else "built in"
        )
        terms = f"[{spec.licence}]({spec.licence_url})" if spec.licence_url else spec.licence
        use = "" if spec.is_commercial else ", not for commercial use"
        lines.append(_row(f"`{spec.model_id}`", f"`{spec.weights}/`", hub, terms + use))
    return "\n".join([*lines, ""])


def _reads(case: Case, inputs: TaskInputs) -> str:
    parts = ["prompt"]
    if inputs.max_references:
        span = {inputs.min_references, inputs.max_references}
        count = " to ".join(str(each) for each in sorted(span))
        parts.append(f"{count} picture{'s' if inputs.max_references > 1 else ''}")
    parts += ["last frame"] if inputs.takes_last_frame else []
    parts += ["mask"] if inputs.needs_mask else []
    parts += ["strength"] if inputs.default_strength is not None else []
    text = ", ".join(parts)
    return f"{text}; gives sound" if get_model(case.model_id).has_audio else text


def _mark(passed: bool | None) -> str:
    return "?" if passed is None else "yes" if passed else "no"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Run the tests and write the page; the exit status is that of the tests."""
    outcomes = Outcomes()
    status = pytest.main(["-q", str(ROOT / TESTS)], plugins=[outcomes])
    PAGE.write_text(page(outcomes.passed), encoding="utf-8")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
