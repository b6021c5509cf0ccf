"""Captions agree with the attributes they describe."""

import random

import pytest

from engine.tiny import vocabulary
from engine.tiny.captions import UNKNOWN, article, caption, phrase

SCENE: dict[str, str | None] = {
    "product": "sneaker",
    "colour": "red",
    "backdrop": "beach",
    "time": "sunset",
    "geography": "san francisco",
    "audience": "runners",
    "motion": "pan left",
}


def words_of(attribute: str, value: str) -> tuple[str, ...]:
    return vocabulary.ATTRIBUTES[attribute][value]


@pytest.mark.parametrize("seed", range(200))
def test_a_caption_holds_a_word_for_every_value_it_claims_to_name(seed: int) -> None:
    text, shown = caption(SCENE, random.Random(seed))
    for name, value in shown.items():
        assert value == SCENE[name]
        assert any(word in text for word in words_of(name, value)), (name, text)


@pytest.mark.parametrize("seed", range(200))
def test_a_caption_names_no_value_that_the_scene_lacks(seed: int) -> None:
    text, _ = caption(SCENE, random.Random(seed))
    for name, values in vocabulary.ATTRIBUTES.items():
        for value, words in values.items():
            if value != SCENE[name]:
                assert not any(f" {word}," in f" {text}," for word in words), (value, text)


def test_captions_leave_attributes_out_and_name_unknown_values_now_and_then() -> None:
    drawn = [caption(SCENE, random.Random(seed)) for seed in range(400)]
    assert 0.02 < sum("product" not in shown for _, shown in drawn) / 400 < 0.15
    strange = [word for words in UNKNOWN.values() for word in words]
    assert any(word in text for text, _ in drawn for word in strange)


def test_the_wording_varies_and_is_fixed_by_the_seed() -> None:
    named = {name: value for name, value in SCENE.items() if value is not None}
    texts = {phrase(named, random.Random(seed)) for seed in range(50)}
    assert len(texts) > 40
    assert phrase(named, random.Random(3)) == phrase(named, random.Random(3))


def test_no_word_stands_for_two_values() -> None:
    seen: dict[str, str] = {}
    for values in vocabulary.ATTRIBUTES.values():
        for value, words in values.items():
            for word in words:
                assert seen.setdefault(word, value) == value


def test_articles_follow_the_next_sound() -> None:
    assert article("orange car") == "an orange car"
    assert article("red car") == "a red car"
