"""What the engine takes from its environment; the only file of the engine that reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConfigError

BUNDLED_MODEL_DIR = Path(__file__).parent / "weights"
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Where and how the engine computes.

    Attributes:
        device: `auto` (CUDA when there is one), or a torch device such as `cpu` or `cuda:1`.
        dtype: `auto` (float32 on a CPU, bfloat16 on a GPU) or a torch dtype's name.
        model_dir: folder that holds one folder per checkpoint.
        torch_threads: CPU threads per operation; None leaves torch's own choice.
    """

    device: str = "auto"
    dtype: str = "auto"
    model_dir: Path = BUNDLED_MODEL_DIR
    torch_threads: int | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> EngineConfig:
        """Read ADLOOM_DEVICE, ADLOOM_DTYPE, ADLOOM_MODEL_DIR and ADLOOM_TORCH_THREADS."""
        source = os.environ if environ is None else environ
        dtype = source.get("ADLOOM_DTYPE", "") or "auto"
        if dtype not in DTYPES:
            raise ConfigError("ADLOOM_DTYPE", f"{dtype!r} is not one of {', '.join(DTYPES)}.")
        model_dir = source.get("ADLOOM_MODEL_DIR", "")
        return cls(
            device=source.get("ADLOOM_DEVICE", "") or "auto",
            dtype=dtype,
            model_dir=Path(model_dir).expanduser() if model_dir else BUNDLED_MODEL_DIR,
            torch_threads=_threads(source.get("ADLOOM_TORCH_THREADS", "")),
        )


def _threads(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(
            "ADLOOM_TORCH_THREADS", f"{text!r} is not a number of threads (1 or more)."
        )
    return int(text)
