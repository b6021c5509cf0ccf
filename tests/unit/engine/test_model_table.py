"""docs/models.md says of every task of every model what its tests found."""

from __future__ import annotations

from tests import model_table
from tests.family_cases import all_cases


def test_the_page_of_models_has_a_row_for_each_case_and_no_open_cell() -> None:
    text = model_table.PAGE.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for case in all_cases():
        (row,) = [each for each in rows if each.startswith(f"| `{case.model_id}` | {case.task} |")]
        assert row.endswith(" yes |" * len(model_table.COLUMNS))
