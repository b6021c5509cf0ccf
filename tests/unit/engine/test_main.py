"""The engine on the command line: files it writes, what it says, how it exits."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import av
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from engine.__main__ import main
from tests.checkpoints import write_checkpoint

Run = Callable[..., Result]

PROMPT = "a red sneaker on a beach"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, model_dir: Path, tmp_path: Path) -> Run:
    """Runs the command with the random checkpoint, in a folder of its own."""
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(model_dir))
    monkeypatch.setenv("ADLOOM_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments)

    return invoke


def test_a_prompt_becomes_a_clip(run: Run) -> None:
    result = run("generate", "--prompt", PROMPT, "--steps", "2", "--frames", "9", "--out", "a.mp4")
    assert result.exit_code == 0, result.output
    assert "a.mp4: 224x128, 9 frame(s)" in result.stdout
    with av.open("a.mp4") as container:
        assert len(list(container.decode(video=0))) == 9


def test_a_draft_is_written_and_finished_as_if_it_had_never_stopped(run: Run) -> None:
    settings = ("--steps", "4", "--frames", "5", "--seed", "3")
    kept = ("--until-step", "2", "--save-state", "a.state")
    for more, name in (((), "whole.mp4"), (kept, "draft.mp4")):
        result = run("generate", "--prompt", PROMPT, *settings, *more, "--out", name)
        assert result.exit_code == 0, result.output
    result = run("generate", "--prompt", PROMPT, "--from-state", "a.state", "--out", "done.mp4")
    assert result.exit_code == 0, result.output
    whole, draft, done = (Path(f"{name}.mp4").read_bytes() for name in ("whole", "draft", "done"))
    assert done == whole != draft


def test_a_saved_state_goes_on_with_the_same_prompt_or_another_one(run: Run) -> None:
    settings = ("--steps", "4", "--frames", "5", "--seed", "3")
    whole = run("generate", "--prompt", PROMPT, *settings, "--out", "whole.mp4")
    assert whole.exit_code == 0, whole.output
    kept = run(
        *("generate", "--prompt", PROMPT, *settings),
        *("--until-step", "2", "--save-state", "a.state"),
    )
    assert kept.stdout == "a.state: after step 2 of 4\n", kept.output
    for prompt, name in ((PROMPT, "same.mp4"), ("a blue mug", "other.mp4")):
        result = run("generate", "--prompt", prompt, "--from-state", "a.state", "--out", name)
        assert result.exit_code == 0, result.output
    assert Path("same.mp4").read_bytes() == Path("whole.mp4").read_bytes()
    assert Path("other.mp4").read_bytes() != Path("whole.mp4").read_bytes()
    refused = run(
        *("generate", "--prompt", PROMPT, "--from-state", "a.state", "--out", "b.mp4"),
        *("--seed", "4"),
    )
    assert refused.exit_code == 2
    assert "The state was made with seed 3, and 4 is asked for." in refused.stderr
    alone = run("generate", "--prompt", PROMPT, "--until-step", "2", "--out", "b.mp4")
    assert (alone.exit_code, "go together" in alone.stderr) == (2, True)


def test_a_picture_is_written_and_starts_a_clip(run: Run) -> None:
    still = run(
        "generate", "--prompt", PROMPT, "--steps", "2", "--size", "1:1", "--out", "first.png"
    )
    assert still.exit_code == 0, still.output
    with Image.open("first.png") as image:
        assert (image.format, image.size) == ("PNG", (160, 160))
    clip = run(
        *("generate", "--prompt", PROMPT, "--steps", "2", "--frames", "5", "--size", "160x160"),
        *("--image", "first.png", "--out", "clip.mp4"),
    )
    assert clip.exit_code == 0, clip.output
    assert Path("clip.mp4").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["--out", "a.gif"], 2, "t2v writes .mp4, not 'a.gif'"),
        (["--out", "a.png", "--task", "t2v"], 2, "t2v writes .mp4"),
        (["--out", "nowhere/a.mp4"], 2, "The folder nowhere does not exist"),
        (["--out", "a.mp4", "--size", "3x3"], 2, "no size '3x3'; choose 224x128 (16:9)"),
        (["--out", "a.mp4", "--frames", "6"], 2, "choose 5 or 9"),
        (["--out", "a.mp4", "--model", "wan"], 2, "there is: adloom-tiny"),
        (["--out", "a.mp4", "--task", "r2v"], 2, "adloom-tiny does not do r2v"),
        (["--out", "a.mp4", "--task", "v2v"], 2, "'v2v' is not one of"),
        (["--out", "a.mp4", "--task", "i2v"], 2, "reads 1 reference image(s), 0 given"),
        (["--out", "a.mp4", "--image", "no.png"], 2, "no.png is missing"),
        (["--out", "a.mp4", "--prompt", "red " * 99], 2, "tokens, but adloom-tiny reads 64"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else None,
)
def test_a_wrong_option_is_answered_clearly(
    run: Run, arguments: list[str], exit_code: int, message: str
) -> None:
    result = run("generate", "--prompt", PROMPT, *arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert message in result.stderr
    assert list(Path().iterdir()) == []


def test_missing_weights_are_said(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(tmp_path))
    options = ("--model", "wan2.1-t2v-1.3b", "--out", "a.mp4")
    result = run("generate", "--prompt", PROMPT, *options)
    assert result.exit_code == 1
    assert "adloom models pull wan2.1-t2v-1.3b" in result.stderr
    assert "adloom models pull wan2.1-t2v-1.3b" in run("models").stdout


def test_a_bad_variable_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADLOOM_DTYPE", "int3")
    result = run("models")
    assert result.exit_code == 1
    assert "ADLOOM_DTYPE" in result.stderr


def test_the_models_are_listed(run: Run, model_dir: Path) -> None:
    result = run("models")
    assert result.exit_code == 0
    for text in ("adloom-tiny", "t2v, i2v, t2i", "128x160 (4:5)", str(model_dir / "tiny")):
        assert text in result.stdout


def test_ctrl_c_leaves_no_file(tmp_path: Path) -> None:
    # Deep enough that 200 steps outlast a busy machine's delay between the bar and the signal.
    write_checkpoint(tmp_path / "models" / "tiny", num_layers=40)
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / "a.mp4"
    terminal, errors = pty.openpty()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "engine", "generate", "--prompt", PROMPT),
            *("--steps", "200", "--out", str(out)),
        ],
        env={**os.environ, "ADLOOM_MODEL_DIR": str(tmp_path / "models"), "TERM": "xterm"},
        stderr=errors,
    )
    os.close(errors)
    said = ""
    # The bar on the terminal shows that the first of 200 steps is under way.
    while "Denoising" not in said:
        said += os.read(terminal, 1024).decode()
    process.send_signal(signal.SIGINT)
    while "Stopped" not in said:
        said += os.read(terminal, 1024).decode()
    assert process.wait(timeout=60) == 130
    assert list(out.parent.iterdir()) == []


def test_a_calibration_is_measured_once_and_kept_beside_the_model(
    run: Run, monkeypatch: pytest.MonkeyPatch, model_dir: Path, tmp_path: Path
) -> None:
    shutil.copytree(model_dir / "tiny", tmp_path / "models" / "tiny")
    monkeypatch.setenv("ADLOOM_MODEL_DIR", str(tmp_path / "models"))
    command = (
        *("calibrate", "--prompt", "a sneaker on {backdrop}", "--prompt", "a mug, {backdrop}"),
        *("--values", "backdrop=snow|a roof", "--seeds", "4,5"),
        *("--steps", "2", "--frames", "5", "--profile", "faithful", "--profile", "fast"),
    )
    first = run(*command)
    assert first.exit_code == 0, first.output
    assert [line.split(":")[1].split(",")[0] for line in first.stdout.splitlines()[3::4]] == [
        " faithful",
        " fast",
    ]
    assert "backdrop: forks at step" in first.stdout
    assert "holds for all of 4 variant(s), 2 prompt(s) and 2 seed(s): " in first.stdout
    kept = tmp_path / "models" / "tiny.calibrations.json"
    assert str(kept) in first.stdout
    written = kept.stat().st_mtime_ns
    assert run(*command).stdout == first.stdout
    assert kept.stat().st_mtime_ns == written
    assert run(*command, "--again").exit_code == 0
    assert kept.stat().st_mtime_ns > written
