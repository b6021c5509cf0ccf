"""The table of landmarks against the table of places, and landmarks in prompts."""

from __future__ import annotations

import csv
from itertools import groupby
from urllib.parse import urlsplit

import pytest

from app.paths import LANDMARKS
from app.services import gazetteer, landmarks
from app.services.landmarks import landmark_phrase
from app.services.prompts import PromptError, parse_prompt
from app.web.prompt_parts import from_template

SKYLINE = "a sneaker in front of {{ city|landmark }}, {{ city }}"


def test_every_landmark_belongs_to_the_city_that_its_row_names() -> None:
    places = gazetteer.load().by_id
    rows = [row for each in landmarks.load().values() for row in each]
    assert len(landmarks.load()) >= 100
    for row in rows:
        place = places[row.geonameid]
        assert (place.name, place.country_code) == (row.city, row.country_code)
        assert row.phrase == row.phrase.strip() and len(row.phrase) > 3
        source = urlsplit(row.source)
        assert (source.scheme, source.hostname) == ("https", "en.wikipedia.org")
        assert source.path.startswith("/wiki/")
    assert len({(row.geonameid, row.phrase) for row in rows}) == len(rows)


def test_the_rows_of_a_city_stand_together() -> None:
    with LANDMARKS.open(encoding="utf-8", newline="") as file:
        ids = [row["geonameid"] for row in csv.DictReader(file)]
    assert [key for key, _ in groupby(ids)] == list(dict.fromkeys(ids))


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("San Francisco", "the Golden Gate Bridge"),
        ("  paris, france ", "the Eiffel Tower"),
        ("Fremont", ""),
        ("Bay Area", ""),
        ("", ""),
    ],
)
def test_a_landmark_is_named_only_where_the_place_is_beyond_doubt(text: str, phrase: str) -> None:
    assert landmark_phrase(text) == phrase


def test_the_filter_puts_a_landmark_into_the_prompt_as_a_slot_of_its_parameter() -> None:
    rendered = parse_prompt(SKYLINE).render({"city": "Paris"})
    assert rendered.text == "a sneaker in front of the Eiffel Tower, Paris"
    assert [span[:2] for span in rendered.spans] == [
        ("city", "the Eiffel Tower"),
        ("city", "Paris"),
    ]


def test_a_place_without_a_known_landmark_is_named_unless_there_is_a_default() -> None:
    parsed = parse_prompt(SKYLINE)
    assert parsed.landmark_names == {"city"}
    with pytest.raises(PromptError, match=r"no landmark is known of “Fremont”.*default"):
        parsed.render({"city": "Fremont"})
    settled = parse_prompt('near {{ city|landmark|default("the old town") }}')
    assert settled.landmark_names == frozenset()
    assert settled.render({"city": "Fremont"}).text == "near the old town"
    assert settled.render({"city": "Rome"}).text == "near the Colosseum"


def test_a_prompt_is_shown_without_values_all_the_same() -> None:
    parts = from_template(parse_prompt(SKYLINE), {"city": "geography"})
    assert "".join(part.text for part in parts) == ("a sneaker in front of landmark of city, city")
