"""The shipped checkpoint loads with unmodified diffusers, follows the prompt and stays small."""

from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import WanImageToVideoPipeline, WanPipeline
from PIL import Image

from engine.tiny import vocabulary
from engine.tiny.classifier import load_judge, read_attributes
from engine.tiny.evaluate import held_out_scene, main
from engine.tiny.runs import to_model_range
from engine.tiny.scenes import render
from engine.tiny.vae import psnr

FOLDER = Path(__file__).parents[4] / "engine" / "weights" / "tiny"
HEIGHT, WIDTH = vocabulary.SIZES["16:9"]
PROMPT = "a red sneaker on a beach, paris, for gamers, noon, static camera"
STEPS = 12


@pytest.fixture(scope="module")
def pipeline() -> WanPipeline:
    pipeline = WanPipeline.from_pretrained(FOLDER, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def video(pipeline: WanPipeline, prompt: str, num_frames: int = 5, length: int = 64) -> np.ndarray:
    output = pipeline(
        prompt,
        height=HEIGHT,
        width=WIDTH,
        num_frames=num_frames,
        num_inference_steps=STEPS,
        guidance_scale=4.0,
        max_sequence_length=length,
        generator=torch.Generator().manual_seed(3),
        output_type="np",
    )
    return np.rint(np.asarray(output.frames) * 255).astype(np.uint8)


def difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a.astype(float) - b.astype(float)).mean())


@pytest.fixture(scope="module")
def control(pipeline: WanPipeline) -> np.ndarray:
    return video(pipeline, PROMPT)


def test_the_folder_is_under_32_megabytes() -> None:
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert size <= 32 * 1024 * 1024


def test_every_part_computes_in_float32_when_nothing_else_is_asked(pipeline: WanPipeline) -> None:
    for part in (pipeline.transformer, pipeline.vae, pipeline.text_encoder):
        assert {p.dtype for p in part.parameters()} == {torch.float32}


def test_the_same_seed_renders_the_same_video(pipeline: WanPipeline, control: np.ndarray) -> None:
    assert control.shape == (1, 5, HEIGHT, WIDTH, 3)
    assert np.array_equal(video(pipeline, PROMPT), control)


@pytest.mark.parametrize(
    ("old", "new"),
    [("red", "blue"), ("beach", "desert"), ("noon", "night"), ("gamers", "families")],
)
def test_changing_one_word_changes_the_video(
    pipeline: WanPipeline, control: np.ndarray, old: str, new: str
) -> None:
    assert difference(video(pipeline, PROMPT.replace(old, new)), control) > 1.0


def test_the_prompt_length_limit_hardly_matters(pipeline: WanPipeline, control: np.ndarray) -> None:
    longer = video(pipeline, PROMPT, length=226)
    changed = video(pipeline, PROMPT.replace("red", "blue"))
    assert difference(longer, control) < 0.5 * difference(changed, control)


def test_the_judge_reads_what_was_asked_for(control: np.ndarray) -> None:
    read = read_attributes(load_judge(FOLDER / "judge"), control)[0]
    assert read["colour"] == "red"
    assert read["backdrop"] == "beach"
    assert read["time"] == "noon"


def test_an_image_is_a_video_of_one_frame(pipeline: WanPipeline) -> None:
    image = video(pipeline, PROMPT, num_frames=1)
    assert image.shape == (1, 1, HEIGHT, WIDTH, 3)
    assert image.std() > 20


def test_a_prompt_without_a_known_word_still_gives_a_picture(pipeline: WanPipeline) -> None:
    assert video(pipeline, "zwölf 漢字 lorem ipsum", num_frames=1).std() > 20


def test_image_to_video_keeps_the_first_frame() -> None:
    pipeline = WanImageToVideoPipeline.from_pretrained(FOLDER, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    frame = render(held_out_scene(1), height=HEIGHT, width=WIDTH, seed=1)[0].numpy()
    output = pipeline(
        image=Image.fromarray(frame),
        prompt=PROMPT,
        height=HEIGHT,
        width=WIDTH,
        num_frames=5,
        num_inference_steps=4,
        guidance_scale=4.0,
        max_sequence_length=64,
        generator=torch.Generator().manual_seed(0),
        output_type="np",
    )
    first = np.rint(output.frames[0][0] * 255).astype(np.uint8)
    pair = to_model_range(torch.from_numpy(np.stack([first, frame])[:, None]))
    assert float(psnr(pair[:1], pair[1:])) > 26


def test_evaluating_a_folder_without_a_checkpoint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["evaluate", "--weights", str(tmp_path), "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "holds no checkpoint" in capsys.readouterr().err
