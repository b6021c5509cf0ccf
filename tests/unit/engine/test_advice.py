"""A terminal without advice that nobody can use, and with all other warnings."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from app.paths import ROOT


def _stderr_of(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import engine.tiny.export",
        "import bench\nfrom diffusers import WanImageToVideoPipeline",
    ],
)
def test_importing_the_pipelines_says_nothing(code: str) -> None:
    assert _stderr_of(code) == ""


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is installed")
def test_without_the_engine_the_advice_is_given() -> None:
    assert "requires torchvision" in _stderr_of("from diffusers import WanImageToVideoPipeline")


def test_other_warnings_are_said() -> None:
    warned = _stderr_of(
        "import engine, transformers\n"
        "transformers.utils.logging.get_logger('transformers.utils.import_utils').warning('Mind!')"
    )
    assert "Mind!" in warned
