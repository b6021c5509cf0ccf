"""The models as data, and the precise error for each setting that a model cannot render."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from tokenizers import Tokenizer
from torch.utils.flop_counter import FlopCounterMode

from engine import registry
from engine.config import BUNDLED_MODEL_DIR
from engine.errors import CheckpointError, InvalidRequest, UnknownModel, UnsupportedTask
from engine.registry import default_settings, get_model, validate, validate_request
from engine.tiny import vocabulary
from engine.tiny.transformer import TRANSFORMER_CONFIG
from engine.tiny.vae import VAE_CONFIG
from engine.types import GenerationRequest, GenerationTask, PromptSlot

MakeRequest = Callable[..., GenerationRequest]
TINY = get_model("adloom-tiny")


def test_the_defaults_of_each_model_task_and_size_are_valid() -> None:
    for spec in registry.list_models():
        for task in spec.tasks:
            for size in spec.sizes:
                validate(default_settings(spec.model_id, task=task, size=size))


def test_the_builtin_model_offers_what_it_is_trained_on() -> None:
    sizes = {size.label: (size.height, size.width) for size in TINY.sizes}
    assert sizes == dict(vocabulary.SIZES)
    assert (TINY.default_frames, TINY.fps) == (vocabulary.NUM_FRAMES, vocabulary.FPS)


def test_an_unknown_model_names_those_there_are() -> None:
    with pytest.raises(UnknownModel, match="adloom-tiny"):
        get_model("wan-99")


def test_an_unsupported_task_names_what_the_model_can_do() -> None:
    settings = replace(default_settings("adloom-tiny"), task=GenerationTask.R2V)
    with pytest.raises(UnsupportedTask, match=r"only t2v, i2v, t2i; r2v is done by: wan2\.1-vace"):
        validate(settings)


def test_an_unsupported_task_names_the_models_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(TINY, model_id="other", pipelines={GenerationTask.R2V: "x:Y"})
    monkeypatch.setattr(registry, "_MODELS", {TINY.model_id: TINY, "other": other})
    settings = replace(default_settings("adloom-tiny"), task=GenerationTask.R2V)
    with pytest.raises(UnsupportedTask, match="r2v is done by: other"):
        validate(settings)


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"width": 1920, "height": 1080}, "size", "no size 1920x1080; choose 224x128 \\(16:9\\)"),
        ({"width": 128, "height": 128}, "size", "160x160"),
        ({"num_frames": 16}, "num_frames", "4k\\+1 frames, not 16; choose 13 or 17"),
        ({"num_frames": 21}, "num_frames", "choose 5 to 17"),
        ({"num_frames": 1}, "num_frames", "choose 5 to 17"),
        ({"num_inference_steps": 0}, "num_inference_steps", "choose 1 to 200"),
        ({"num_inference_steps": 201}, "num_inference_steps", "is 201"),
        ({"fps": 0}, "fps", "choose 1 to 60"),
        ({"guidance_scale": -1.0}, "guidance_scale", "choose 0 to 30"),
        ({"guidance_scale": float("nan")}, "guidance_scale", "nan"),
    ],
)
def test_a_setting_out_of_range_says_what_to_choose(
    changes: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        validate(replace(default_settings("adloom-tiny"), **changes))
    assert caught.value.field == field


def test_a_still_has_one_frame() -> None:
    settings = default_settings("adloom-tiny", task=GenerationTask.T2I)
    assert settings.num_frames == 1
    with pytest.raises(InvalidRequest, match="1 frame, not 17"):
        validate(replace(settings, num_frames=17))


def test_a_size_is_found_by_label_and_by_pixels() -> None:
    assert TINY.find_size("9:16") is TINY.find_size("128x224")
    assert TINY.find_size("4:3") is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"prompt": "  "}, "prompt"),
        ({"prompt": "shoe " * 100}, "prompt"),
        ({"negative_prompt": "shoe " * 100}, "negative_prompt"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"references": (Path("a.png"),)}, "references"),
    ],
)
def test_a_request_that_cannot_be_rendered_names_the_field(
    make_request: MakeRequest, model_dir: Path, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_request(make_request(**changes), model_dir=model_dir)
    assert caught.value.field == field


def test_image_to_video_needs_its_image(make_request: MakeRequest, model_dir: Path) -> None:
    request = make_request(task=GenerationTask.I2V)
    with pytest.raises(InvalidRequest, match=r"reads 1 reference image\(s\), 0 given"):
        validate_request(request, model_dir=model_dir)
    validate_request(replace(request, references=(Path("a.png"),)), model_dir=model_dir)


@pytest.mark.parametrize("spans", [[(0, 5)], [(2, 5), (4, 8)], [(2, 99)]])
def test_slots_must_stand_in_the_prompt(
    make_request: MakeRequest, model_dir: Path, spans: list[tuple[int, int]]
) -> None:
    prompt = "a red sneaker"
    slots = tuple(
        PromptSlot(name="x", kind="text", value="red" if span != (4, 8) else "d sn", span=span)
        for span in spans
    )
    with pytest.raises(InvalidRequest, match="slot"):
        validate_request(make_request(prompt, slots=slots), model_dir=model_dir)


def test_a_prompt_is_measured_in_the_models_tokens(model_dir: Path) -> None:
    count = registry.count_tokens("adloom-tiny", "a red sneaker", model_dir=model_dir)
    spaced = registry.count_tokens("adloom-tiny", " a  red \n sneaker ", model_dir=model_dir)
    assert 3 <= count < 12
    assert spaced == count
    longest = "red " * (TINY.max_sequence_length - 1)
    registry.validate_prompt("adloom-tiny", longest, model_dir=model_dir)
    with pytest.raises(InvalidRequest, match="65 tokens, but adloom-tiny reads 64"):
        registry.validate_prompt("adloom-tiny", longest + "red", model_dir=model_dir)


def test_padding_saved_with_a_tokenizer_does_not_count(model_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(model_dir / "tiny", tmp_path / "tiny")
    path = tmp_path / "tiny" / "tokenizer" / "tokenizer.json"
    saved = Tokenizer.from_file(str(path))
    saved.enable_padding(length=64)
    saved.enable_truncation(max_length=64)
    saved.save(str(path))
    for prompt in ("a red sneaker", "red " * 99):
        counts = {
            registry.count_tokens("adloom-tiny", prompt, model_dir=folder)
            for folder in (model_dir, tmp_path)
        }
        assert len(counts) == 1


def test_missing_weights_say_where_they_belong(tmp_path: Path) -> None:
    way_out = "adloom models pull wan2.1-t2v-1.3b .* ADLOOM_MODEL_DIR"
    with pytest.raises(CheckpointError, match=way_out) as caught:
        registry.weights_fingerprint("wan2.1-t2v-1.3b", model_dir=tmp_path)
    assert caught.value.path == tmp_path / "wan2.1-t2v-1.3b"
    with pytest.raises(CheckpointError, match=way_out):
        registry.count_tokens("wan2.1-t2v-1.3b", "a", model_dir=tmp_path)


def test_the_built_in_model_is_there_wherever_others_are_kept(
    tmp_path: Path, model_dir: Path
) -> None:
    bundled = registry.checkpoint_folder("adloom-tiny", model_dir=tmp_path)
    assert bundled == registry.checkpoint_folder("adloom-tiny", model_dir=BUNDLED_MODEL_DIR)
    assert registry.is_installed("adloom-tiny", model_dir=tmp_path)
    own = registry.checkpoint_folder("adloom-tiny", model_dir=model_dir)
    assert own == model_dir / "tiny"


def test_the_environment_says_where_models_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(tmp_path))
    assert registry.checkpoint_folder("qwen-image") == tmp_path / "qwen-image"


@pytest.mark.parametrize("size", TINY.sizes, ids=str)
def test_the_price_of_a_forward_follows_the_transformers_operations(size: registry.Size) -> None:
    with torch.device("meta"):
        transformer = WanTransformer3DModel(**TRANSFORMER_CONFIG)
        tokens = TINY.cost.num_tokens(width=size.width, height=size.height, num_frames=17)
        latents = torch.empty(1, 48, 5, size.height // 16, size.width // 16)
        text = torch.empty(1, TINY.cost.text_tokens, TRANSFORMER_CONFIG["text_dim"])
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            transformer(latents, torch.empty(1, tokens), text)
    # Patch and text embeddings, about 3 %, are left out of the formula.
    assert TINY.cost.forward_flops(tokens) == pytest.approx(counter.get_total_flops(), rel=0.04)


def test_the_price_of_a_decode_follows_the_decoders_operations() -> None:
    size = TINY.sizes[0]
    with torch.device("meta"):
        vae = AutoencoderKLWan(**VAE_CONFIG)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            vae.decode(torch.empty(1, 48, 5, size.height // 16, size.width // 16))
    pixels = size.width * size.height * TINY.default_frames
    assert TINY.cost.decode_flops == pytest.approx(counter.get_total_flops() / pixels, rel=0.02)
