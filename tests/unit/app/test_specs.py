"""The frozen inputs of a batch: what is accepted, what is stored, what is read back."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.errors import InvalidInput
from app.models import ExpansionMode, ParameterKind
from app.services.specs import (
    BatchSpec,
    SpecParameter,
    SpecSettings,
    check_rules,
    check_settings,
)
from app.services.variants import variant_count
from tests.factories import SETTINGS


def make_spec(**changes: Any) -> BatchSpec:
    values: dict[str, Any] = {
        "parameters": (
            SpecParameter(name="city", kind=ParameterKind.GEOGRAPHY, values=("paris", "tokyo")),
            SpecParameter(name="who", kind=ParameterKind.AUDIENCE, column="Audience"),
            SpecParameter(name="note", kind=ParameterKind.TEXT),
        ),
        "mode": ExpansionMode.CARTESIAN,
        "settings": SpecSettings(**SETTINGS),
    }
    return BatchSpec(**values | changes)


def test_a_spec_is_read_back_as_it_was_stored() -> None:
    spec = make_spec(seed=5, takes=3, row_id_column="id", seed_column="seed", row_count=9)
    stored = spec.to_json()
    assert stored["parameters"][0]["values"] == ["paris", "tokyo"]
    assert BatchSpec.model_validate(stored) == spec


def test_values_and_columns_are_told_apart_and_empty_ones_left_out() -> None:
    spec = make_spec()
    assert spec.typed_values == {"city": ("paris", "tokyo")}
    assert spec.columns == {"who": "Audience"}


@pytest.mark.parametrize(
    "changes",
    [
        {"takes": 0},
        {"takes": 101},
        {"seed": -1},
        {"mode": ExpansionMode.SAMPLED},
        {"sample_size": 5},
        {"unknown": 1},
        {"parameters": (SpecParameter(name="a", kind=ParameterKind.TEXT),) * 2},
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make_spec(**changes)


def test_a_setting_that_the_model_lacks_is_named() -> None:
    with pytest.raises(InvalidInput, match="no size 100x100") as caught:
        check_settings(make_spec(settings=SpecSettings(**SETTINGS | {"width": 100, "height": 100})))
    assert caught.value.field == "size"


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(InvalidInput, match="no model 'other'"):
        check_settings(make_spec(settings=SpecSettings(**SETTINGS | {"model_id": "other"})))


def test_a_rule_is_stored_read_back_and_told_in_words() -> None:
    never = {"when": {"city": ["paris"]}, "never": {"who": ["runners", "gamers"]}}
    only = {"when": {"city": ["tokyo"]}, "only": {"who": ["families"]}}
    spec = make_ruled(never, only)
    assert BatchSpec.model_validate(spec.to_json()) == spec
    assert [str(rule) for rule in spec.rules] == [
        "paris never with runners or gamers",
        "tokyo only with families",
    ]


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ([], 6),
        ([{"when": {"city": ["paris"]}, "never": {"who": ["runners"]}}], 5),
        ([{"when": {"city": ["paris"]}, "only": {"who": ["runners"]}}], 4),
        ([{"when": {"city": ["paris", "tokyo"]}, "only": {"who": ["runners", "gamers"]}}], 4),
    ],
)
def test_rules_leave_combinations_out_of_the_count(rules: list[dict[str, Any]], left: int) -> None:
    assert variant_count(make_ruled(*rules)) == left
    assert variant_count(make_ruled(*rules, takes=3)) == 3 * left


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"when": {"city": ["oslo"]}, "never": {"who": ["runners"]}}, "'oslo', which is no value"),
        ({"when": {"town": ["oslo"]}, "never": {"who": ["runners"]}}, "no value of town"),
    ],
)
def test_a_rule_about_what_is_not_there_is_refused(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        check_rules(make_ruled(rule))
    assert caught.value.field == "rules"


def test_a_rule_about_a_column_of_the_table_is_refused() -> None:
    rule = {"when": {"city": ["paris"]}, "never": {"who": ["runners"]}}
    with pytest.raises(InvalidInput, match="who, which comes from the table"):
        check_rules(make_spec(rules=(rule,), row_count=2))


@pytest.mark.parametrize(
    "rule",
    [
        {"when": {"city": ["paris"]}},
        {"when": {"city": ["paris"]}, "never": {"who": ["x"]}, "only": {"who": ["y"]}},
        {"when": {"city": ["paris"]}, "never": {"city": ["tokyo"]}},
        {"when": {"city": []}, "never": {"who": ["x"]}},
        {"when": {}, "never": {"who": ["x"]}},
    ],
)
def test_a_rule_that_says_nothing_is_no_rule(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make_ruled(rule)


def make_ruled(*rules: dict[str, Any], **changes: Any) -> BatchSpec:
    parameters = (
        SpecParameter(name="city", kind=ParameterKind.GEOGRAPHY, values=("paris", "tokyo")),
        SpecParameter(
            name="who", kind=ParameterKind.AUDIENCE, values=("runners", "gamers", "families")
        ),
    )
    return make_spec(parameters=parameters, rules=rules, **changes)
