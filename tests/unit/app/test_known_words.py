"""Values beside the words that a model knows."""

from __future__ import annotations

from app.web.known_words import MAX_SHOWN, find_unknown, known_words
from engine.registry import get_model

KINDS = {"geography": "geography", "scene": "choice"}


def test_values_without_a_word_that_the_model_knows_are_found_once_each() -> None:
    values = {
        "geography": ["Oslo", "PARIS", "near the Golden Gate Bridge", "Oslo", "Parisian"],
        "scene": ["a beach at noon"],
    }
    (found,) = find_unknown("adloom-tiny", KINDS, values)
    assert (found.name, found.shown, found.more) == ("geography", ("Oslo", "Parisian"), 0)
    assert "Rio de Janeiro" in found.known


def test_many_unknown_values_are_counted() -> None:
    values = {"scene": [f"thing {number}" for number in range(MAX_SHOWN + 3)]}
    (found,) = find_unknown("adloom-tiny", KINDS, values)
    assert (len(found.shown), found.more, found.known) == (MAX_SHOWN, 3, ())


def test_a_model_that_takes_any_words_knows_every_value() -> None:
    assert find_unknown("flux.1-dev", KINDS, {"geography": ["Oslo"]}) == []
    assert known_words(get_model("flux.1-dev")) == []
