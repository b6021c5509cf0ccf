"""The frozen inputs of a batch: what is accepted, what is stored, what is read back."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.errors import InvalidInput
from app.models import ExpansionMode, ParameterKind
from app.services.specs import BatchSpec, SpecParameter, SpecSettings, check_settings
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
