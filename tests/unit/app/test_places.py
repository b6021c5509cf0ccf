"""Which place a text means: resolved, asked back, or left as it is; and suggestions."""

from __future__ import annotations

from zoneinfo import available_timezones

import pytest

from app.services import gazetteer
from app.services.gazetteer import PlaceKind, fold
from app.services.places import (
    MAX_TEXT_LENGTH,
    label_place,
    resolve_place,
    resolve_values,
    suggest_places,
)


def meant(text: str) -> str:
    place = resolve_place(text).place
    assert place is not None, text
    return place.full_name


def test_an_ambiguous_name_asks_and_names_the_largest_first() -> None:
    resolution = resolve_place("Fremont")
    assert resolution.is_ambiguous
    assert [label_place(place) for place in resolution.candidates] == [
        "Fremont, California",
        "Fremont, Nebraska",
        "Fremont, Ohio",
    ]


@pytest.mark.parametrize(
    "text", ["Fremont, California", "fremont, ca", "FREMONT, CA, USA", "Fremont,California, US"]
)
def test_a_region_in_any_spelling_answers_the_question(text: str) -> None:
    place = resolve_place(text).place
    assert place is not None
    assert (place.geonameid, place.timezone) == (5350734, "America/Los_Angeles")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("London", "London, England, United Kingdom"),
        ("London, Ontario", "London, Ontario, Canada"),
        ("Paris", "Paris, France"),
        ("Paris, TX", "Paris, Texas, United States"),
        ("New York", "New York City, New York, United States"),
        ("NYC", "New York City, New York, United States"),
        ("Sao Paulo", "São Paulo, Brazil"),
        ("Cologne", "Köln, Germany"),
        ("St. Petersburg, Florida", "St. Petersburg, Florida, United States"),
        ("Washington, D.C.", "Washington, District of Columbia, United States"),
        ("the state of Washington", "Washington, United States"),
        ("Georgia state", "Georgia, United States"),
        ("Singapore", "Singapore"),
        ("UK", "United Kingdom"),
        ("California", "California, United States"),
    ],
)
def test_a_name_that_people_use_is_understood(text: str, expected: str) -> None:
    assert meant(text) == expected


def test_a_famous_place_says_which_others_it_passed_over() -> None:
    resolution = resolve_place("London")
    assert [label_place(place) for place in resolution.candidates] == ["London, Ontario"]


def test_a_country_with_several_time_zones_has_none() -> None:
    france, states = resolve_place("France").place, resolve_place("USA").place
    assert france is not None and france.timezone == "Europe/Paris"
    assert states is not None and states.timezone == ""


@pytest.mark.parametrize("text", ["Bay Area", "a beach", "", " , ", "x" * (MAX_TEXT_LENGTH + 1)])
def test_what_is_no_place_is_unknown(text: str) -> None:
    assert resolve_place(text).is_unknown


def test_only_places_beyond_doubt_are_stored_under_the_text_as_typed() -> None:
    assert resolve_values(["paris", "Fremont", "Nowhere at all", "paris"]) == {
        "paris": {
            "geonameid": 2988507,
            "name": "Paris, France",
            "country_code": "FR",
            "timezone": "Europe/Paris",
        }
    }


def test_a_label_leads_back_to_its_place() -> None:
    places = gazetteer.load().by_id.values()
    lost = [place for place in places if resolve_place(label_place(place)).place != place]
    # GeoNames has some places twice, so close to each other that no words tell them apart.
    assert len(lost) < len(places) / 500
    assert [place.name for place in lost if place.population > 1_000_000] == []


def test_places_are_read_whole() -> None:
    places = gazetteer.load().by_id.values()
    kinds = [place.kind for place in places]
    assert kinds.count(PlaceKind.STATE) == 50
    assert kinds.count(PlaceKind.COUNTRY) > 240
    assert kinds.count(PlaceKind.CITY) > 30_000
    assert {place.timezone for place in places} - {""} <= available_timezones()
    assert all(place.region for place in places if place.country_code == "US" and place.longitude)


def test_suggestions_begin_with_the_text_and_follow_a_region() -> None:
    assert "San Francisco" in [label_place(place) for place in suggest_places("san fran")]
    assert [label_place(place) for place in suggest_places("Fremont, c")] == ["Fremont, California"]
    assert suggest_places("x") == []
    found = suggest_places("ber")
    assert found[0].name == "Berlin" and len(found) == 8
    assert len(suggest_places("a" * 200)) == 0


def test_a_name_is_compared_without_accents_dots_and_hyphens() -> None:
    assert fold("  Saint-Étienne ") == fold("ST. ETIENNE") == "saint etienne"
    assert fold("Tromsø") == "tromso"
