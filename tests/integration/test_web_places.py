"""Places in the campaign form and over the API: stored, asked about, suggested."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import select

from app.db import Database
from app.models import Batch, Parameter, Workspace
from tests.api import Api, make_key
from tests.integration.test_web_campaigns import FORM, create_batch
from tests.web import Browser

pytestmark = pytest.mark.usefixtures("weights")


@pytest.fixture
def api(app: Flask, database: Database, workspace: Workspace) -> Api:
    return Api(app, make_key(database, workspace))


def places_of(database: Database, name: str) -> dict[str, str]:
    with database.system_scope() as session:
        row = session.scalars(select(Parameter).where(Parameter.name == name)).one()
        return {value: place["timezone"] for value, place in row.places.items()}


def test_places_are_stored_beside_the_values_and_leave_prompts_as_typed(
    editor: Browser, database: Database
) -> None:
    create_batch(editor, **{"values:geography": "Paris\nFremont\nFremont, CA\nBay Area"})
    assert places_of(database, "geography") == {
        "Paris": "Europe/Paris",
        "Fremont, CA": "America/Los_Angeles",
    }
    assert places_of(database, "backdrop") == {}
    with database.system_scope() as session:
        (spec,) = session.scalars(select(Batch.spec))
    values = {item["name"]: item["values"] for item in spec["parameters"]}
    assert values["geography"] == ["Paris", "Fremont", "Fremont, CA", "Bay Area"]


def test_the_form_asks_which_place_is_meant_while_one_types(editor: Browser) -> None:
    answer = editor.post("/campaigns/preview", FORM | {"values:geography": "Fremont\nBay Area"})
    assert 'data-replace="Fremont" data-with="Fremont, California"' in answer.text
    assert "Bay Area: no place that Adloom knows" in answer.text
    other = editor.post(
        "/campaigns/preview",
        FORM | {"values:geography": "Fremont", "kind:geography": "choice"},
    )
    assert "data-replace" not in other.text


def test_landmarks_are_offered_and_missing_ones_told_at_the_values(editor: Browser) -> None:
    form = FORM | {"values:geography": "Paris\nFremont, CA"}
    offered = editor.post("/campaigns/preview", form).text
    assert 'data-insert="geography | landmark"' in offered
    assert 'data-phrase="the Eiffel Tower"' in offered
    prompt = "a sneaker at {{ geography|landmark }} on {{ backdrop }}"
    missing = editor.post("/campaigns/preview", form | {"prompt": prompt}).text
    assert "No landmark is known of “Fremont, CA”; say what stands in its place" in missing
    known = form | {"prompt": prompt, "values:geography": "Paris\nRome"}
    assert "the Colosseum" in editor.post("/campaigns/preview", known).text
    refused = editor.post("/campaigns/new", form | {"prompt": prompt, "then": "quote"})
    assert refused.status_code == 400
    path = create_batch(editor, **{"prompt": prompt, "values:geography": "Paris\nRome"})
    assert "the Colosseum" in editor.get(path).text


def test_many_questions_are_counted(editor: Browser) -> None:
    names = ["Springfield", "Portland", "Fremont", "Georgia", "Birmingham", "Athens", "Victoria"]
    answer = editor.post("/campaigns/preview", FORM | {"values:geography": "\n".join(names)})
    assert "and 1 more question like these" in answer.text


def test_suggestions_are_options_with_where_they_are(editor: Browser) -> None:
    answer = editor.get("/places/suggestions?q=San+Fran")
    assert 'data-suggestion="San Francisco"' in answer.text
    assert "California, United States · America/Los_Angeles" in answer.text
    assert "data-suggestion" not in editor.get("/places/suggestions").text


def test_the_api_says_what_a_name_means_and_what_it_may_mean(api: Api) -> None:
    asked = api.get("/places?q=Fremont").json
    assert asked["place"] is None
    assert [item["label"] for item in asked["data"][:2]] == [
        "Fremont, California",
        "Fremont, Nebraska",
    ]
    known = api.get("/places?q=Fremont, CA").json["place"]
    assert (known["geonameid"], known["kind"], known["timezone"]) == (
        5350734,
        "city",
        "America/Los_Angeles",
    )
    paris = api.get("/places?q=Paris").json["place"]
    assert paris["landmarks"][0] == {
        "phrase": "the Eiffel Tower",
        "source": "https://en.wikipedia.org/wiki/Eiffel_Tower",
    }
    assert api.get("/places?q=Nowhere+at+all").json == {"place": None, "data": []}


def test_the_api_shows_the_places_of_a_geography(api: Api) -> None:
    parameters = [{"name": "geography", "values": ["Tokyo", "Fremont"]}]
    body = {"name": "n", "prompt": "in {{ geography }}", "parameters": parameters}
    (parameter,) = api.made("/campaigns", body)["parameters"]
    assert parameter["places"] == {
        "Tokyo": {
            "geonameid": 1850147,
            "name": "Tokyo, Japan",
            "country_code": "JP",
            "timezone": "Asia/Tokyo",
        }
    }
