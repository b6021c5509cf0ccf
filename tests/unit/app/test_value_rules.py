"""Combinations that rules leave out: counted and found by number as brute force finds them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidInput
from app.models import ExpansionMode
from app.services.expansion import SourceRow, count, expand
from app.services.value_rules import AllowedCombinations, Forbidden, RuledValues

NAMES = ("a", "b", "c", "d")
LETTERS = st.sampled_from("uvwxyz")
LISTS = st.dictionaries(
    st.sampled_from(NAMES), st.lists(LETTERS, min_size=1, max_size=4), min_size=1, max_size=4
)


@st.composite
def ruled(draw: st.DrawFn) -> RuledValues:
    values = draw(LISTS)
    boxes = st.dictionaries(
        st.sampled_from(sorted(values)), st.frozensets(LETTERS, max_size=4), min_size=1, max_size=3
    )
    return RuledValues(values, draw(st.lists(boxes, min_size=1, max_size=6)))


def by_brute_force(values: RuledValues) -> list[dict[str, str]]:
    found = [dict(zip(values, each, strict=True)) for each in product(*values.values())]
    return [item for item in found if not any(is_in(item, box) for box in values.forbidden)]


def is_in(item: dict[str, str], box: Forbidden) -> bool:
    return all(item[name] in named for name, named in box.items())


@given(values=ruled())
def test_count_and_order_are_those_of_brute_force(values: RuledValues) -> None:
    allowed = AllowedCombinations(values)
    assert [allowed.at(index) for index in range(allowed.size)] == by_brute_force(values)


@given(values=ruled(), start=st.integers(0, 40), seed=st.integers(0, 2**63))
def test_every_mode_goes_on_from_any_ordinal_of_what_is_left(
    values: RuledValues, start: int, seed: int
) -> None:
    left = by_brute_force(values)
    rows = [SourceRow(values={"row": str(n)}) for n in range(3)]
    with_rows = [{"row": row.values["row"], **item} for row in rows for item in left]
    cases = [
        (ExpansionMode.CARTESIAN, {}, left),
        (ExpansionMode.CARTESIAN, {"rows": rows, "row_count": 3}, with_rows),
    ]
    for mode, options, expected in cases:
        found = [dict(item.values) for item in expand(mode, values, **options, start=start)]
        assert found == expected[start:]
    options = {"sample_size": 5, "sample_seed": seed}
    whole = [dict(item.values) for item in expand(ExpansionMode.SAMPLED, values, **options)]
    assert len(whole) == min(5, len(left)) == count(ExpansionMode.SAMPLED, values, sample_size=5)
    assert all(whole.count(item) <= left.count(item) for item in whole)
    rest = expand(ExpansionMode.SAMPLED, values, **options, start=start)
    assert [dict(item.values) for item in rest] == whole[start:]


def test_a_huge_product_is_counted_and_entered_without_going_through_it() -> None:
    values = {f"p{n}": [str(value) for value in range(1000)] for n in range(8)}
    few = frozenset(map(str, range(10)))
    ruled = RuledValues(values, [{"p0": few, "p7": few}, {"p3": frozenset(["500"])}])
    total = count(ExpansionMode.CARTESIAN, ruled)
    assert total == 999 * 10**21 - 100 * 999 * 10**15
    (last,) = expand(ExpansionMode.CARTESIAN, ruled, start=total - 1)
    assert set(last.values.values()) == {"999"}


def test_rules_that_leave_nothing_give_no_combination() -> None:
    ruled = RuledValues({"a": ["x"], "b": ["y"]}, [{"a": frozenset("x")}])
    assert count(ExpansionMode.CARTESIAN, ruled) == 0
    assert list(expand(ExpansionMode.CARTESIAN, ruled)) == []
    rows = [SourceRow(values={})]
    assert list(expand(ExpansionMode.CARTESIAN, ruled, rows=rows, row_count=1)) == []


def test_rules_that_are_too_entangled_are_refused() -> None:
    names = [f"p{n}" for n in range(40)]
    values = {name: ["x", "y"] for name in names}
    boxes = [{names[n]: frozenset("x"), names[39 - n]: frozenset("x")} for n in range(20)]
    with pytest.raises(InvalidInput, match="too entangled") as caught:
        count(ExpansionMode.CARTESIAN, RuledValues(values, boxes))
    assert caught.value.field == "rules"
