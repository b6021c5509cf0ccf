"""The scene generator: same seed, same pixels; every attribute changes the picture."""

import subprocess
import sys

import pytest
import torch

from engine.tiny import vocabulary
from engine.tiny.scenes import Scene, product_cover, render

BASE = Scene(
    product="sneaker",
    colour="red",
    backdrop="beach",
    time="noon",
    geography="paris",
    audience="families",
    motion="pan left",
)


def frames(scene: Scene, seed: int = 7, num_frames: int = 5, bucket: str = "16:9") -> torch.Tensor:
    height, width = vocabulary.SIZES[bucket]
    return render(scene, height=height, width=width, seed=seed, num_frames=num_frames)


def changed(**values: str | None) -> Scene:
    return Scene(**{**BASE.attributes(), **values})  # type: ignore[arg-type]


def test_the_same_seed_renders_the_same_frames() -> None:
    assert torch.equal(frames(BASE), frames(BASE))


def test_another_seed_renders_other_frames() -> None:
    assert not torch.equal(frames(BASE), frames(BASE, seed=8))


@pytest.mark.parametrize("bucket", list(vocabulary.SIZES))
def test_every_bucket_gives_its_size(bucket: str) -> None:
    height, width = vocabulary.SIZES[bucket]
    clip = frames(BASE, bucket=bucket, num_frames=2)
    assert clip.shape == (2, height, width, 3)
    assert clip.dtype == torch.uint8


@pytest.mark.parametrize("attribute", list(vocabulary.ATTRIBUTES))
def test_every_value_of_an_attribute_looks_different(attribute: str) -> None:
    clips = [frames(changed(**{attribute: v})).float() for v in vocabulary.values(attribute)]
    for i, first in enumerate(clips):
        for second in clips[i + 1 :]:
            assert (first - second).abs().mean() > 0.5


@pytest.mark.parametrize("attribute", ["geography", "audience"])
def test_geography_and_audience_may_be_left_out(attribute: str) -> None:
    without = frames(changed(**{attribute: None})).float()
    assert (without - frames(BASE).float()).abs().mean() > 0.5


def test_a_still_clip_does_not_move_and_a_pan_does() -> None:
    still = frames(changed(motion="still"))
    assert torch.equal(still[0], still[-1])
    moving = frames(BASE).float()
    assert (moving[0] - moving[-1]).abs().mean() > 2


def test_an_unknown_value_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"colour 'teal' is not one of: red, orange"):
        changed(colour="teal")


def test_the_vocabulary_loads_without_numpy_and_torch() -> None:
    code = "import engine.tiny.vocabulary, sys; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("motion", ["still", "jump", "push in"])
def test_the_products_cover_is_where_another_colour_changes_the_clip(motion: str) -> None:
    scene = changed(motion=motion)
    height, width = vocabulary.SIZES["16:9"]
    cover = product_cover(scene, height=height, width=width, seed=7, num_frames=5)
    assert cover.shape == (5, height, width)
    other = frames(changed(motion=motion, colour="green")).float()
    change = (frames(scene).float() - other).abs().amax(-1)
    assert change[cover == 0].max() == 0
    assert change[cover > 0.99].mean() > 30
    assert 0.02 < cover.mean() < 0.2
