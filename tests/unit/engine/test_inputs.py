"""What a model cannot read is refused before anything is loaded, with the models that can."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import inputs
from engine.errors import InvalidRequest
from engine.plan import affinity_key
from engine.registry import (
    default_settings,
    forwards_per_step,
    get_model,
    is_installed,
    list_models,
    validate,
)
from engine.types import GenerationRequest, GenerationTask, Lora

PICTURE = Path("a.png")
LORA = Lora(path=Path("style.safetensors"))


def _request(model_id: str, task: GenerationTask | None = None, **changes: Any) -> Any:
    settings = default_settings(model_id, task=task)
    count = get_model(model_id).inputs_of(settings.task).min_references
    request = GenerationRequest(
        request_id="r",
        prompt="a cup",
        seed=1,
        settings=settings,
        references=tuple(Path(f"{place}.png") for place in range(count)),
    )
    return replace(request, **changes)


def _check(request: GenerationRequest) -> None:
    inputs.validate(get_model(request.settings.model_id), request, list_models())


@pytest.mark.parametrize(
    ("request_", "field", "message"),
    [
        (_request("flux.1-dev", references=(PICTURE,)), "references", "reads 0 .* 1 given"),
        (_request("wan2.1-vace-1.3b", references=()), "references", "reads 1 to 3"),
        (_request("wan2.1-vace-1.3b", references=(PICTURE,) * 4), "references", "4 given"),
        (_request("flux.1-dev", mask=PICTURE), "mask", r"these do: flux.1-fill-dev \(i2i\)"),
        (_request("flux.1-fill-dev"), "mask", "give a mask"),
        (
            _request("ltx-2", GenerationTask.I2V, last_frame=PICTURE),
            "last_frame",
            r"these do: wan2.2-i2v-a14b \(i2v\)",
        ),
        (_request("flux.1-kontext-dev", strength=0.5), "strength", r"flux.1-dev \(i2i\)"),
        (_request("flux.1-dev", GenerationTask.I2I, strength=0.0), "strength", "above 0 up to 1"),
        (_request("flux.2-dev", negative_prompt="grey"), "negative_prompt", "adloom-tiny"),
        (_request("flux.1-dev", loras=(LORA,) * 2), "loras", "given twice"),
        (_request("flux.1-dev", loras=(replace(LORA, weight=9.0),)), "loras", "-4 to 4"),
        (_request("flux.1-dev", loras=(Lora(path=Path("a.ckpt")),)), "loras", "no .safetensors"),
        (
            _request(
                "flux.1-dev",
                loras=tuple(Lora(path=Path(f"{place}.safetensors")) for place in range(5)),
            ),
            "loras",
            "4 at most",
        ),
    ],
    ids=str,
)
def test_an_input_that_is_not_read_is_refused(
    request_: GenerationRequest, field: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        _check(request_)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "request_",
    [
        _request("wan2.2-i2v-a14b", last_frame=PICTURE, negative_prompt="grey"),
        _request("flux.1-fill-dev", mask=PICTURE, strength=1.0),
        _request("flux.2-dev", GenerationTask.I2I, references=(PICTURE,) * 4),
        _request("ltx-2", loras=(LORA,)),
    ],
    ids=str,
)
def test_what_a_task_reads_is_accepted(request_: GenerationRequest) -> None:
    _check(request_)


@pytest.mark.parametrize(
    "changes", [{"strength": 0.5}, {"loras": (LORA,)}, {"mask": PICTURE}, {"last_frame": PICTURE}]
)
def test_variants_with_other_inputs_share_nothing(changes: dict[str, Any]) -> None:
    request = _request("flux.1-dev", GenerationTask.I2I)
    assert affinity_key(replace(request, **changes)) != affinity_key(request)


def test_only_a_model_that_reads_the_frame_rate_is_split_by_it() -> None:
    for model_id, is_split in (("ltx-2", True), ("wan2.2-ti2v-5b", False)):
        request = _request(model_id)
        other = replace(request, settings=replace(request.settings, fps=12))
        assert (affinity_key(other) != affinity_key(request)) is is_split


def test_sizes_beside_the_listed_ones_follow_one_rule() -> None:
    settings = default_settings("flux.1-dev")
    validate(replace(settings, width=1280, height=720))
    for width, height in ((1281, 720), (2048, 2048), (16, 1024)):
        with pytest.raises(InvalidRequest, match="or any multiples of 16 from 256 to 2048"):
            validate(replace(settings, width=width, height=height))


@pytest.mark.parametrize(
    ("model_id", "guidance", "forwards"),
    [
        ("adloom-tiny", 4.0, 2),
        ("adloom-tiny", 1.0, 1),
        ("flux.1-dev", 3.5, 1),
        ("hidream-i1-dev", 0.0, 1),
        ("ltx-2", 4.0, 3),
    ],
)
def test_forwards_of_a_step_follow_the_kind_of_guidance(
    model_id: str, guidance: float, forwards: int
) -> None:
    settings = replace(default_settings(model_id), guidance_scale=guidance)
    assert forwards_per_step(settings) == forwards


def test_each_model_but_the_builtin_one_says_where_it_comes_from_and_on_which_terms() -> None:
    for spec in list_models():
        if spec.model_id != "adloom-tiny":
            assert spec.hub_id
            assert spec.licence_url and spec.licence_url.startswith("https://")


def test_a_model_is_installed_where_its_checkpoint_lies(tmp_path: Path) -> None:
    assert is_installed("adloom-tiny")
    assert not is_installed("flux.1-dev", model_dir=tmp_path)
    (tmp_path / "flux.1-dev").mkdir()
    (tmp_path / "flux.1-dev" / "model_index.json").write_text("{}")
    assert is_installed("flux.1-dev", model_dir=tmp_path)
