"""Whole, damaged and foreign checkpoint folders, and the fingerprint of what decides the pixels."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from engine.checkpoint import check_checkpoint, fingerprint
from engine.errors import CheckpointError
from engine.registry import get_model

CLASSES = get_model("adloom-tiny").pipeline_classes


@pytest.fixture
def folder(model_dir: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(model_dir / "tiny", tmp_path / "tiny")


def test_a_whole_checkpoint_passes(folder: Path) -> None:
    check_checkpoint(folder, CLASSES)


def test_a_folder_without_an_index_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no model_index\.json"):
        check_checkpoint(tmp_path, CLASSES)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_an_unreadable_index_is_named(folder: Path, text: str) -> None:
    (folder / "model_index.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"model_index\.json") as caught:
        check_checkpoint(folder, CLASSES)
    assert caught.value.path == folder / "model_index.json"


def test_a_checkpoint_of_another_class_says_what_it_is(folder: Path) -> None:
    index = folder / "model_index.json"
    data = json.loads(index.read_text(encoding="utf-8")) | {"_class_name": "FluxPipeline"}
    index.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"checkpoint of FluxPipeline, but .* WanPipeline"):
        check_checkpoint(folder, CLASSES)


def test_a_missing_part_is_named(folder: Path) -> None:
    shutil.rmtree(folder / "vae")
    with pytest.raises(CheckpointError, match="vae: this part of the checkpoint is missing"):
        check_checkpoint(folder, CLASSES)


@pytest.mark.parametrize("keep", [0, 4, 8, 200, -1])
def test_a_weights_file_that_was_cut_off_is_named(folder: Path, keep: int) -> None:
    path = folder / "transformer" / "diffusion_pytorch_model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="Copy it anew") as caught:
        check_checkpoint(folder, CLASSES)
    assert caught.value.path == path


@pytest.mark.parametrize("header", [b"[]", b'{"a": 1}', b'{"a": {"data_offsets": []}}', b"\xff"])
def test_a_weights_file_with_a_strange_header_is_named(folder: Path, header: bytes) -> None:
    path = folder / "vae" / "diffusion_pytorch_model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(CheckpointError, match="no readable safetensors header"):
        check_checkpoint(folder, CLASSES)


def test_the_fingerprint_belongs_to_contents_not_to_places(model_dir: Path, folder: Path) -> None:
    assert fingerprint(folder) == fingerprint(model_dir / "tiny")


def test_the_fingerprint_changes_with_weights_and_configuration(folder: Path) -> None:
    seen = {fingerprint(folder)}
    weights = folder / "vae" / "diffusion_pytorch_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    seen.add(fingerprint(folder))
    config = folder / "scheduler" / "scheduler_config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("2.0", "3.0"), encoding="utf-8")
    seen.add(fingerprint(folder))
    assert len(seen) == 3


def test_the_fingerprint_ignores_what_is_no_part_of_the_pipeline(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / "judge").mkdir()
    (folder / "judge" / "judge.safetensors").write_bytes(b"reads renders")
    assert fingerprint(folder) == before


def test_the_fingerprint_ignores_the_model_card(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / "README.md").write_text("A card.", encoding="utf-8")
    assert fingerprint(folder) == before
