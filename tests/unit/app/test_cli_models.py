"""`adloom models` against a hub of our own: pulls, breaks, refusals, checks and removals."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli.main import main
from engine.checkpoint import fingerprint
from engine.snapshots import LOCK_NAME
from tests.disks import small_disk
from tests.hub_double import CHUNK_BYTES, Files, HubDouble, hub_double

MODEL = "wan2.1-t2v-1.3b"
HUB_ID = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"
SHARD = "transformer/diffusion_pytorch_model-00001-of-00002.safetensors"
Run = Callable[..., Result]


def _safetensors(size_bytes: int, *, seed: int = 0) -> bytes:
    """The length of the header, the header as JSON, and so many bytes of one tensor."""
    tensor = {"dtype": "U8", "shape": [size_bytes], "data_offsets": [0, size_bytes]}
    header = json.dumps({"w": tensor}).encode()
    return len(header).to_bytes(8, "little") + header + random.Random(seed).randbytes(size_bytes)


def _files(*, seed: int = 0) -> Files:
    index = {
        "_class_name": "WanPipeline",
        "scheduler": ["diffusers", "UniPCMultistepScheduler"],
        "image_encoder": [None, None],
        "tokenizer": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "vae": ["diffusers", "AutoencoderKLWan"],
    }
    return {
        "model_index.json": json.dumps(index).encode(),
        "LICENSE.txt": b"Apache",
        "scheduler/scheduler_config.json": b"{}",
        "tokenizer/tokenizer.json": b"{}",
        "tokenizer/spiece.model": b"pieces",
        "transformer/config.json": b"{}",
        SHARD: _safetensors(500_000, seed=seed),
        SHARD.replace("00001-of", "00002-of"): _safetensors(300_000, seed=seed + 1),
        "vae/diffusion_pytorch_model.safetensors": _safetensors(1000),
    }


UNNEEDED: Files = {
    "README.md": b"a card",
    "assets/sample.safetensors": b"x",
    "transformer/diffusion_pytorch_model.bin": b"pickle",
    "transformer/diffusion_pytorch_model.fp16.safetensors": b"half",
    "transformer/notes.md": b"x",
    "whole.safetensors": b"x",
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubDouble]:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    # The library writes what has come in pieces of 10 MB; the files here are smaller.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", CHUNK_BYTES)
    with hub_double() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def model_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture
def run(model_dir: Path) -> Run:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["models", *arguments])

    return run


def _pulled(folder: Path) -> Files:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != LOCK_NAME
    }


def _assert_refused(result: Result, *parts: str) -> None:
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    for part in parts:
        assert part in result.stderr


def test_a_pull_brings_what_the_pipeline_needs_and_locks_the_commit(
    hub: HubDouble, run: Run, model_dir: Path
) -> None:
    commit = hub.publish(HUB_ID, _files() | UNNEEDED)
    result = run("pull", MODEL)
    assert result.exit_code == 0, result.output
    assert commit in result.stdout
    assert "Apache-2.0" in result.stderr
    assert _pulled(model_dir / MODEL) == _files()
    lock = json.loads((model_dir / MODEL / LOCK_NAME).read_text())
    assert [source["revision"] for source in lock["sources"]] == [commit]
    assert {path.name for path in (model_dir / ".pulls").iterdir()} == {f"{MODEL}.lock"}
    line = next(each for each in run("list").stdout.splitlines() if each.startswith(MODEL))
    assert f"{model_dir / MODEL}, at {commit[:12]}" in line


def test_a_later_pull_keeps_the_locked_commit_until_it_is_told_otherwise(
    hub: HubDouble, run: Run, model_dir: Path
) -> None:
    first = hub.publish(HUB_ID, _files())
    assert run("pull", MODEL).exit_code == 0
    newer = hub.publish(HUB_ID, _files(seed=5))
    hub.asked.clear()
    again = run("pull", MODEL)
    assert "is here already, and whole" in again.stdout
    assert first in again.stdout
    assert {Path(asked.path).name for asked in hub.files_asked()} <= {"model_index.json"}
    assert _pulled(model_dir / MODEL) == _files()
    moved = run("pull", MODEL, "--revision", "main")
    assert moved.exit_code == 0, moved.output
    assert newer in moved.stdout
    assert _pulled(model_dir / MODEL) == _files(seed=5)
    # What both commits have is not fetched twice.
    assert not any("/vae/" in asked.path for asked in hub.files_asked())


def test_a_broken_pull_goes_on_where_it_was(hub: HubDouble, run: Run, model_dir: Path) -> None:
    hub.publish(HUB_ID, _files())
    hub.trouble.cut_at[SHARD] = 200_000
    _assert_refused(run("pull", MODEL), "503", "What has come is kept")
    assert not (model_dir / MODEL).exists()
    assert f"of it; go on: adloom models pull {MODEL}" in run("list").stdout
    hub.trouble.cut_at.clear()
    hub.trouble.status.clear()
    hub.asked.clear()
    assert run("pull", MODEL).exit_code == 0
    assert _pulled(model_dir / MODEL) == _files()
    # Of the last piece only what filled it was kept.
    kept = 200_000 // CHUNK_BYTES * CHUNK_BYTES
    asked = {asked.range for asked in hub.files_asked() if SHARD in asked.path}
    assert asked == {f"bytes={kept}-"}
    # What had come whole is not asked for again.
    assert not any("scheduler" in asked.path for asked in hub.files_asked())


def test_a_hub_that_cannot_be_reached_is_said(
    run: Run, monkeypatch: pytest.MonkeyPatch, model_dir: Path
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    _assert_refused(run("pull", MODEL), "http://127.0.0.1:1 cannot be reached", "HF_ENDPOINT")


def test_a_gated_model_says_how_to_get_in(
    hub: HubDouble, run: Run, monkeypatch: pytest.MonkeyPatch, model_dir: Path
) -> None:
    hub.publish(HUB_ID, _files(), token="hf_right")
    page = f"{hub.url}/{HUB_ID}"
    _assert_refused(run("pull", MODEL), page, "settings/tokens", "HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    _assert_refused(run("pull", MODEL), "has no access yet", page)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    hub.asked.clear()
    assert run("pull", MODEL).exit_code == 0
    assert _pulled(model_dir / MODEL) == _files()
    shown = {asked.authorization for asked in hub.asked if asked.host.startswith("localhost")}
    assert shown == {None}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([MODEL, "--revision", "v9"], [f"{HUB_ID} has no revision 'v9'", "/commits"]),
        (["wan"], ["no model 'wan'", MODEL]),
        (["flux.1-dev"], ["FLUX.1-dev does not exist", "HF_TOKEN"]),
        (["adloom-tiny"], ["part of Adloom"]),
    ],
)
def test_a_pull_of_what_there_is_not_is_refused(
    hub: HubDouble, run: Run, arguments: list[str], parts: list[str]
) -> None:
    hub.publish(HUB_ID, _files())
    _assert_refused(run("pull", *arguments), *parts)


def test_pickled_weights_are_refused_before_anything_large_is_fetched(
    hub: HubDouble, run: Run, model_dir: Path
) -> None:
    files = _files()
    del files["vae/diffusion_pytorch_model.safetensors"]
    hub.publish(HUB_ID, files | {"vae/diffusion_pytorch_model.bin": b"pickle"})
    _assert_refused(run("pull", MODEL), "vae as a pickle only", "--revision")
    assert {Path(asked.path).name for asked in hub.files_asked()} == {"model_index.json"}


def test_a_repository_of_another_kind_of_pipeline_is_refused(hub: HubDouble, run: Run) -> None:
    index = json.loads(_files()["model_index.json"]) | {"_class_name": "FluxPipeline"}
    hub.publish(HUB_ID, _files() | {"model_index.json": json.dumps(index).encode()})
    _assert_refused(run("pull", MODEL), "checkpoint of FluxPipeline", "WanPipeline")
    hub.publish(HUB_ID, {"config.json": b"{}"})
    _assert_refused(run("pull", MODEL), "no model_index.json")


def test_a_disk_that_is_too_small_is_said_before_the_weights_are_fetched(
    hub: HubDouble, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.publish(HUB_ID, _files())
    with small_disk(tmp_path, size_bytes=600_000) as disk:
        monkeypatch.setenv("ADLOOM_MODEL_DIR", str(disk / "models"))
        _assert_refused(run("pull", MODEL), "GB are free", "ADLOOM_MODEL_DIR")
        assert {Path(asked.path).name for asked in hub.files_asked()} == {"model_index.json"}


def test_a_disk_that_fills_up_during_a_pull_keeps_what_has_come(
    hub: HubDouble, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.publish(HUB_ID, _files())
    with small_disk(tmp_path, size_bytes=1_200_000) as disk:
        monkeypatch.setenv("ADLOOM_MODEL_DIR", str(disk / "models"))
        ballast = disk / "ballast"

        def fill_up(path: str, at: int) -> None:
            """Somebody else writes to this disk while the first shard comes."""
            if path == SHARD and at == 3 * CHUNK_BYTES:
                _wait_for(lambda: _stored(disk) >= CHUNK_BYTES)
                with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))

        hub.trouble.on_chunk = fill_up
        _assert_refused(run("pull", MODEL), "No space is left", str(disk / "models"), "goes on")
        hub.trouble.on_chunk = lambda path, at: None
        ballast.unlink()
        hub.asked.clear()
        assert run("pull", MODEL).exit_code == 0
        assert _pulled(disk / "models" / MODEL) == _files()
        assert any(asked.range for asked in hub.files_asked())


def _stored(disk: Path) -> int:
    return sum(path.stat().st_size for path in disk.rglob(Path(SHARD).name))


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_came_damaged_is_thrown_away_and_fetched_again(
    hub: HubDouble, run: Run, model_dir: Path
) -> None:
    hub.publish(HUB_ID, _files())
    hub.trouble.replaced[SHARD] = bytes(len(_files()[SHARD]))
    _assert_refused(run("pull", MODEL), SHARD, "thrown away")
    assert not (model_dir / MODEL).exists()
    hub.trouble.replaced.clear()
    hub.asked.clear()
    assert run("pull", MODEL).exit_code == 0
    assert {asked.range for asked in hub.files_asked()} == {None}
    assert _pulled(model_dir / MODEL) == _files()


def test_verify_names_damaged_files_and_a_pull_mends_them(
    hub: HubDouble, run: Run, model_dir: Path
) -> None:
    hub.publish(HUB_ID, _files())
    run("pull", MODEL)
    whole = run("verify", MODEL)
    assert whole.exit_code == 0
    assert "9 files" in whole.stdout
    shard, config = model_dir / MODEL / SHARD, model_dir / MODEL / "transformer" / "config.json"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    config.write_bytes(b"[]")
    (model_dir / MODEL / "tokenizer" / "spiece.model").write_bytes(b"pie")
    damaged = run("verify")
    assert damaged.exit_code == 1
    for line in (
        f"{shard} has other contents than the hub's.",
        f"{config} has other contents than the hub's.",
        "spiece.model has 3 bytes where the hub has 6.",
        f"Mend it: adloom models pull {MODEL}",
    ):
        assert line in damaged.stdout
    assert "vae" not in damaged.stdout
    assert f"damaged: {model_dir / MODEL}" in run("list").stdout
    hub.asked.clear()
    assert run("pull", MODEL).exit_code == 0
    names = {Path(asked.path).name for asked in hub.files_asked()}
    assert names == {"model_index.json", Path(SHARD).name, "config.json", "spiece.model"}
    assert run("verify").exit_code == 0


def test_the_fingerprint_of_pulled_weights_is_that_of_their_contents(
    hub: HubDouble, run: Run, model_dir: Path, tmp_path: Path
) -> None:
    hub.publish(HUB_ID, _files())
    run("pull", MODEL)
    copied = shutil.copytree(model_dir / MODEL, tmp_path / "copied")
    (copied / LOCK_NAME).unlink()
    before = fingerprint(model_dir / MODEL)
    assert before == fingerprint(copied)
    shard = model_dir / MODEL / SHARD
    shard.write_bytes(_safetensors(500_000, seed=9))
    assert fingerprint(model_dir / MODEL) != before


def test_the_list_says_how_models_fit_into_memory(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    on_cpu = run("list").stdout
    assert "no GPU was found" in on_cpu
    assert "of host memory in float32." in on_cpu
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 24564\n")
    program.chmod(0o755)
    lines = run("list").stdout.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("flux.1-dev"))
    assert "text_encoder_2, transformer wait in host memory" in lines[at + 1]
    roomy = run("list", "--gpu-gb", "141").stdout
    assert "a GPU of 141 GB" in roomy
    assert roomy.count("All parts stay on the GPU") == 15


def test_rm_asks_and_says_what_it_freed(hub: HubDouble, run: Run, model_dir: Path) -> None:
    hub.publish(HUB_ID, _files())
    run("pull", MODEL)
    refused = run("rm", MODEL)
    assert refused.exit_code == 1
    assert f"Remove {model_dir / MODEL} (" in refused.stdout
    assert (model_dir / MODEL).is_dir()
    removed = run("rm", MODEL, "--yes")
    assert removed.exit_code == 0
    assert "kB freed" in removed.stdout
    assert not (model_dir / MODEL).exists()
    _assert_refused(run("rm", MODEL, "--yes"), "is not on this machine")
    _assert_refused(run("rm", "adloom-tiny", "--yes"), "part of Adloom")


def test_rm_takes_a_link_and_leaves_what_it_points_to(
    run: Run, model_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "model_index.json").write_bytes(b"{}")
    model_dir.mkdir()
    (model_dir / MODEL).symlink_to(tmp_path / "elsewhere")
    assert "0 B freed" in run("rm", MODEL, "--yes").stdout
    assert not (model_dir / MODEL).exists()
    assert (tmp_path / "elsewhere" / "model_index.json").exists()


def test_rm_takes_an_unfinished_pull(hub: HubDouble, run: Run, model_dir: Path) -> None:
    hub.publish(HUB_ID, _files())
    hub.trouble.cut_at[SHARD] = 200_000
    run("pull", MODEL)
    assert "196.9 kB freed" in run("rm", MODEL, "--yes").stdout
    assert "go on" not in run("list").stdout


def test_weights_that_were_put_there_by_hand_are_left_alone(
    hub: HubDouble, run: Run, model_dir: Path
) -> None:
    hub.publish(HUB_ID, _files())
    for path, data in _files().items():
        (model_dir / MODEL / path).parent.mkdir(parents=True, exist_ok=True)
        (model_dir / MODEL / path).write_bytes(data)
    _assert_refused(run("pull", MODEL), f"adloom models rm {MODEL}")
    assert "put there by hand" in run("list").stdout
    verified = run("verify", MODEL)
    assert verified.exit_code == 0
    assert "Nothing is known of their contents" in verified.stdout


def test_parts_that_a_checkpoint_leaves_out_come_from_their_own_repository(
    hub: HubDouble, run: Run, model_dir: Path
) -> None:
    index = {
        "_class_name": "HiDreamImagePipeline",
        "text_encoder_4": [None, None],
        "tokenizer_4": [None, None],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    vae = "vae/diffusion_pytorch_model.safetensors"
    own = {"model_index.json": json.dumps(index).encode(), vae: _safetensors(100)}
    language = {
        "config.json": b"{}",
        "model.safetensors": _safetensors(200),
        "tokenizer.json": b"{}",
        "original/consolidated.00.pth": b"pickle",
    }
    hub.publish("HiDream-ai/HiDream-I1-Full", own)
    hub.publish("meta-llama/Meta-Llama-3.1-8B-Instruct", language)
    result = run("pull", "hidream-i1-full")
    assert result.exit_code == 0, result.output
    assert _pulled(model_dir / "hidream-i1-full") == own | {
        "text_encoder_4/config.json": language["config.json"],
        "text_encoder_4/model.safetensors": language["model.safetensors"],
        "tokenizer_4/tokenizer.json": language["tokenizer.json"],
    }
    assert run("verify", "hidream-i1-full").exit_code == 0
