"""What a variant is made of, and when two variants are the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidInput
from app.models import ExpansionMode, ParameterKind
from app.services.expansion import SourceRow
from app.services.specs import BatchSpec, SpecParameter, SpecSettings
from app.services.variants import (
    PREVIEW_STEPS,
    VariantFactory,
    iterate_drafts,
    preview_key,
    preview_settings,
    variant_count,
    variant_key,
)
from engine.types import GenerationTask, QualityProfile, RenderSettings
from tests.factories import SETTINGS

RENDER_SETTINGS = RenderSettings.from_dict(SETTINGS)
KEY: dict[str, Any] = {
    "prompt": "a mug",
    "negative_prompt": "",
    "seed": 1,
    "settings": RENDER_SETTINGS,
    "weights": "w1",
}


def make_spec(*extra: SpecParameter, **changes: Any) -> BatchSpec:
    values: dict[str, Any] = {
        "parameters": (
            SpecParameter(name="colour", kind=ParameterKind.CHOICE, values=("red", "blue")),
            SpecParameter(
                name="city", kind=ParameterKind.GEOGRAPHY, values=("paris", "rome", "oslo")
            ),
            *extra,
        ),
        "mode": ExpansionMode.CARTESIAN,
        "settings": SpecSettings(**SETTINGS),
        "seed": 40,
    }
    return BatchSpec(**values | changes)


def factory(spec: BatchSpec, *, negative_text: str = "") -> VariantFactory:
    return VariantFactory(
        spec,
        text="a {{ colour }} mug in {{ city|title }}",
        negative_text=negative_text,
        weights="w",
    )


def test_slots_say_where_each_value_stands() -> None:
    spec = make_spec()
    first = next(iterate_drafts(spec, factory(spec)))
    assert first.prompt == "a red mug in Paris"
    assert [(slot.name, slot.kind, slot.value, slot.span) for slot in first.slots] == [
        ("colour", "choice", "red", (2, 5)),
        ("city", "geography", "Paris", (13, 18)),
    ]
    assert first.to_request().slots == first.slots


@given(start=st.integers(min_value=0, max_value=17))
def test_drafts_can_be_made_from_any_ordinal_on(start: int) -> None:
    spec = make_spec(takes=3)
    everything = list(iterate_drafts(spec, factory(spec)))
    assert len(everything) == variant_count(spec) == 18
    assert [draft.ordinal for draft in everything] == list(range(18))
    assert list(iterate_drafts(spec, factory(spec), start=start)) == everything[start:]


def test_all_variants_share_the_seed_and_takes_add_to_it() -> None:
    spec = make_spec(takes=2)
    seeds = [draft.seed for draft in iterate_drafts(spec, factory(spec))]
    assert seeds == [40] * 6 + [41] * 6


def test_a_seed_column_goes_before_the_seed_of_the_batch() -> None:
    spec = make_spec(seed_column="seed", row_count=3, mode=ExpansionMode.ZIP, parameters=())
    rows = [
        SourceRow(values={"colour": "red", "city": "rome"}, passthrough={"seed": seed}, row_id=seed)
        for seed in ("7", "", "x")
    ]
    drafts = iterate_drafts(spec, VariantFactory(spec, text="mug", negative_text="", weights="w"),
                            read_rows=lambda first: iter(rows[first:]))  # fmt: skip
    assert [draft.seed for draft in islice(drafts, 2)] == [7, 40]
    with pytest.raises(InvalidInput, match=r"Variant 3 \(row x\): The seed 'x'"):
        next(iterate_drafts(
            spec, VariantFactory(spec, text="mug", negative_text="", weights="w"),
            read_rows=lambda first: iter(rows[first:]), start=2,
        ))  # fmt: skip


def test_sizes_and_durations_change_the_settings_and_not_the_prompt() -> None:
    size = SpecParameter(name="format", kind=ParameterKind.SIZE, values=("16:9", "9:16"))
    length = SpecParameter(name="length", kind=ParameterKind.DURATION, values=("0.4 s", "1.42"))
    spec = make_spec(size, length)
    drafts = list(iterate_drafts(spec, factory(spec)))[:4]
    assert {draft.prompt for draft in drafts} == {"a red mug in Paris"}
    assert [(d.settings.width, d.settings.height, d.settings.num_frames) for d in drafts] == [
        (224, 128, 5),
        (224, 128, 17),
        (128, 224, 5),
        (128, 224, 17),
    ]


@pytest.mark.parametrize("value", ["10", "0", "-1", "long", "nan", ""])
def test_a_length_that_the_model_cannot_render_is_refused(value: str) -> None:
    length = SpecParameter(name="length", kind=ParameterKind.DURATION, values=(value,))
    spec = make_spec(length)
    with pytest.raises(InvalidInput, match=r"choose 0\.42 to 1\.42 seconds"):
        next(iterate_drafts(spec, factory(spec)))


def test_a_still_picture_has_one_frame_whatever_the_length() -> None:
    length = SpecParameter(name="length", kind=ParameterKind.DURATION, values=("1",))
    settings = SpecSettings(**SETTINGS | {"task": GenerationTask.T2I, "num_frames": 1})
    spec = make_spec(length, settings=settings)
    assert next(iterate_drafts(spec, factory(spec))).settings.num_frames == 1


def test_the_negative_prompt_takes_values_too() -> None:
    spec = make_spec()
    draft = next(iterate_drafts(spec, factory(spec, negative_text="no {{ colour }} sky")))
    assert draft.negative_prompt == "no red sky"


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "a cup"},
        {"negative_prompt": "blur"},
        {"seed": 2},
        {"weights": "w2"},
        {"settings": replace(RENDER_SETTINGS, num_inference_steps=5)},
        {"settings": replace(RENDER_SETTINGS, profile=QualityProfile.CONSISTENT)},
        {"settings": replace(RENDER_SETTINGS, fps=24)},
    ],
)
def test_whatever_decides_the_pixels_is_part_of_the_key(change: dict[str, Any]) -> None:
    assert variant_key(**KEY) == variant_key(**KEY)
    assert variant_key(**KEY | change) != variant_key(**KEY)


def test_prompt_and_negative_prompt_cannot_be_confused() -> None:
    one = variant_key(**KEY | {"prompt": "a", "negative_prompt": "b"})
    assert one != variant_key(**KEY | {"prompt": "b", "negative_prompt": "a"})
    assert one != variant_key(**KEY | {"prompt": 'a","b', "negative_prompt": ""})


def test_a_preview_has_another_key_than_the_final_unless_they_are_the_same() -> None:
    long = replace(RENDER_SETTINGS, num_inference_steps=PREVIEW_STEPS + 1)
    assert preview_settings(long).num_inference_steps == PREVIEW_STEPS
    assert preview_key("k", long) != "k"
    assert preview_settings(RENDER_SETTINGS) == RENDER_SETTINGS
    assert preview_key("k", RENDER_SETTINGS) == "k"
