"""Combinations: how many, which, in what order, and from any ordinal on."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidInput
from app.models import ExpansionMode
from app.services.expansion import SourceRow, assign_columns, count, expand

VALUES = {"city": ["Paris", "Rome"], "audience": ["runners", "gamers", "families"]}
ROWS = [
    SourceRow(values={"city": "Paris"}, passthrough={"market": "FR"}, row_id="a"),
    SourceRow(values={"city": "Rome"}, passthrough={"market": "IT"}, row_id="b"),
    SourceRow(values={"city": "Tokyo"}, passthrough={"market": "JP"}),
]
VALUE_LISTS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.lists(st.text(alphabet="xyz", max_size=2), min_size=1, max_size=4, unique=True),
    max_size=3,
)


def combined(mode: ExpansionMode, values: dict[str, list[str]], **options: object) -> list[tuple]:
    return [
        tuple(item.values[name] for name in sorted(item.values))
        for item in expand(mode, values, **options)
    ]


def test_cartesian_gives_every_combination_and_the_last_parameter_changes_fastest() -> None:
    items = list(expand(ExpansionMode.CARTESIAN, VALUES))
    assert [item.ordinal for item in items] == list(range(6))
    expected = [{"city": c, "audience": a} for c, a in product(*VALUES.values())]
    assert [item.values for item in items] == expected
    assert count(ExpansionMode.CARTESIAN, VALUES) == 6


def test_a_prompt_without_placeholders_makes_one_variant() -> None:
    assert [item.values for item in expand(ExpansionMode.CARTESIAN, {})] == [{}]


def test_zip_pairs_line_by_line_and_repeats_a_single_value() -> None:
    values = {"city": ["Paris", "Rome"], "audience": ["runners", "gamers"], "time": ["noon"]}
    assert [item.values for item in expand(ExpansionMode.ZIP, values)] == [
        {"city": "Paris", "audience": "runners", "time": "noon"},
        {"city": "Rome", "audience": "gamers", "time": "noon"},
    ]


def test_zip_refuses_lists_of_unequal_length_and_gives_the_counts() -> None:
    with pytest.raises(InvalidInput, match=r"city has 2, audience has 3; give city 3") as caught:
        count(ExpansionMode.ZIP, VALUES)
    assert caught.value.field == "city"


def test_a_parameter_without_values_is_named() -> None:
    with pytest.raises(InvalidInput, match="no values for place") as caught:
        list(expand(ExpansionMode.CARTESIAN, {**VALUES, "place": []}))
    assert caught.value.field == "place"


def test_a_sample_has_no_repeats_and_follows_its_seed() -> None:
    first = combined(ExpansionMode.SAMPLED, VALUES, sample_size=4, sample_seed=1)
    again = combined(ExpansionMode.SAMPLED, VALUES, sample_size=4, sample_seed=1)
    assert first == again
    assert len(set(first)) == 4


def test_another_seed_gives_another_sample() -> None:
    values = {"a": [str(n) for n in range(100)]}
    samples = {
        tuple(combined(ExpansionMode.SAMPLED, values, sample_size=5, sample_seed=seed))
        for seed in range(20)
    }
    assert len(samples) == 20


def test_a_stored_seed_means_the_same_sample_for_ever() -> None:
    values = {"n": [str(n) for n in range(1000)]}
    drawn = combined(ExpansionMode.SAMPLED, values, sample_size=5, sample_seed=2026)
    assert drawn == [("208",), ("784",), ("992",), ("116",), ("308",)]


def test_a_sample_draws_every_combination_equally_often() -> None:
    values = {"n": [str(n) for n in range(10)]}
    drawn = Counter(
        name
        for seed in range(3000)
        for (name,) in combined(ExpansionMode.SAMPLED, values, sample_size=3, sample_seed=seed)
    )
    # 900 each on average; 5 standard deviations are about 125.
    assert len(drawn) == 10
    assert all(775 < times < 1025 for times in drawn.values())


def test_a_sample_larger_than_the_product_is_the_whole_product() -> None:
    drawn = combined(ExpansionMode.SAMPLED, VALUES, sample_size=50, sample_seed=3)
    assert sorted(drawn) == sorted(combined(ExpansionMode.CARTESIAN, VALUES))
    assert count(ExpansionMode.SAMPLED, VALUES, sample_size=50) == 6


def test_a_small_sample_of_a_huge_product_is_drawn_without_counting_through_it() -> None:
    values = {f"p{n}": [str(value) for value in range(1000)] for n in range(8)}
    assert count(ExpansionMode.CARTESIAN, values) == 10**24
    drawn = combined(ExpansionMode.SAMPLED, values, sample_size=20, sample_seed=9)
    assert len(set(drawn)) == 20


def test_a_product_beyond_counting_is_refused() -> None:
    values = {f"p{n}": [str(value) for value in range(1000)] for n in range(14)}
    with pytest.raises(InvalidInput, match="use fewer"):
        count(ExpansionMode.CARTESIAN, values)


@given(values=VALUE_LISTS, start=st.integers(0, 70), seed=st.integers(0, 2**63))
def test_every_mode_goes_on_from_any_ordinal(
    values: dict[str, list[str]], start: int, seed: int
) -> None:
    rows = [SourceRow(values={"row": str(n)}, row_id=str(n)) for n in range(3)]
    single = {name: given[:1] for name, given in values.items()}
    cases = [
        (ExpansionMode.CARTESIAN, values, {}),
        (ExpansionMode.SAMPLED, values, {"sample_size": 7, "sample_seed": seed}),
        (ExpansionMode.ZIP, single, {}),
        (ExpansionMode.CARTESIAN, values, {"rows": rows, "row_count": 3}),
        (ExpansionMode.ZIP, single, {"rows": rows, "row_count": 3}),
        (ExpansionMode.SAMPLED, values, {"rows": rows, "row_count": 3, "sample_size": 5}),
    ]
    for mode, given_values, options in cases:
        whole = list(expand(mode, given_values, **options))
        assert list(expand(mode, given_values, **options, start=start)) == whole[start:]
        sizes = {key: options[key] for key in ("row_count", "sample_size") if key in options}
        assert len(whole) == count(mode, given_values, **sizes)
        assert [item.ordinal for item in whole] == list(range(len(whole)))


def test_each_row_of_an_upload_is_one_variant_in_zip() -> None:
    items = list(expand(ExpansionMode.ZIP, {}, rows=iter(ROWS), row_count=3))
    assert [(item.values["city"], item.row_id, item.passthrough["market"]) for item in items] == [
        ("Paris", "a", "FR"),
        ("Rome", "b", "IT"),
        ("Tokyo", None, "JP"),
    ]


def test_typed_values_stand_beside_the_rows_in_zip() -> None:
    values = {"time": ["noon"], "colour": ["red", "blue", "green"]}
    items = expand(ExpansionMode.ZIP, values, rows=iter(ROWS), row_count=3)
    assert [item.values["colour"] for item in items] == ["red", "blue", "green"]
    with pytest.raises(InvalidInput, match="like the rows of the table"):
        count(ExpansionMode.ZIP, {"colour": ["red", "blue"]}, row_count=3)


def test_cartesian_combines_each_row_with_the_typed_values() -> None:
    values = {"colour": ["red", "blue"]}
    items = list(expand(ExpansionMode.CARTESIAN, values, rows=iter(ROWS), row_count=3))
    assert [(item.values["city"], item.values["colour"]) for item in items] == [
        (row.values["city"], colour) for row in ROWS for colour in ("red", "blue")
    ]
    assert items[3].row_id == "b"


def test_rows_are_read_only_as_far_as_needed() -> None:
    read = []

    def rows():
        for row in ROWS:
            read.append(row)
            yield row

    next(expand(ExpansionMode.ZIP, {}, rows=rows(), row_count=3))
    assert len(read) == 1


def test_a_rows_cells_are_sorted_into_values_id_and_the_rest() -> None:
    cells = {"row_id": "7", "City": "Paris", "notes": "=1+1"}
    row = assign_columns(cells, {"city": "City"}, row_id_column="row_id")
    assert row == SourceRow(values={"city": "Paris"}, passthrough={"notes": "=1+1"}, row_id="7")
    assert assign_columns({"city": "x", "id": ""}, {"city": "city"}, row_id_column="id") == (
        SourceRow(values={"city": "x"})
    )
