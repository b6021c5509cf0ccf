"""What the engine takes from its environment; the only file of the engine that reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import ConfigError
from engine.memory import WeightPrecision
from engine.profiles import GUARD_EVERY
from engine.types import StemConditioning, StepCachePolicy

BUNDLED_MODEL_DIR = Path(__file__).parent / "weights"
HUB_ENDPOINT = "https://huggingface.co"
MEBIBYTE = 1 << 20
# The only candidate that depends on the request alone: all groups, retries and previews of a family
# run the same edges, and may take them from a cache. On the built-in model it came nearest to the
# exact renders of places (by 1.5 to 7 dB); the mean embedding was 1.7 dB nearer for backdrops. With
# the control variant's prompt values often came out as the control's after 9 of 30 shared steps.
STEM_CONDITIONING = StemConditioning.WORDS_REMOVED
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Where and how the engine computes.

    Attributes:
        device: `auto` (CUDA when there is one), or a torch device such as `cpu` or `cuda:1`.
        dtype: `auto` (float32 on a CPU, bfloat16 on a GPU) or a torch dtype's name.
        model_dir: folder that holds one folder per checkpoint.
        torch_threads: CPU threads per operation; None leaves torch's own choice.
        batch_size: edges of a denoising tree in one forward at most; `exact` never batches. On
            two CPU cores 8 clips together took 2.4 times less per clip than one by one.
        cache_bytes: limit for prompt embeddings and states kept for later requests; 0 keeps none.
        model_bytes: limit for the weights of models that are kept loaded; None is what the GPU
            has, or half of a CPU's memory.
        stem_conditioning: what edges that variants share are conditioned on.
        step_cache: what profiles other than `exact` may skip inside a run; None leaves that to the
            calibration and the profile.
        guard_every: one in so many approximate renders is checked by an exact one; 0 checks none,
            which is for measurements that do the checking themselves.
        fast_math: profiles other than `exact` may round differently from diffusers: on a CPU they
            compute with fewer operations, in bfloat16 where the processor is faster with it.
        weights: precision of the transformers' weights on a GPU; None keeps them full, and takes
            int8 where a model fits in no other way. Renders in int8 or fp8 differ a little.
    """

    device: str = "auto"
    dtype: str = "auto"
    model_dir: Path = BUNDLED_MODEL_DIR
    torch_threads: int | None = None
    batch_size: int = 8
    cache_bytes: int = 256 * MEBIBYTE
    model_bytes: int | None = None
    stem_conditioning: StemConditioning = STEM_CONDITIONING
    step_cache: StepCachePolicy | None = None
    guard_every: int = GUARD_EVERY
    fast_math: bool = True
    weights: WeightPrecision | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> EngineConfig:
        """Read ADLOOM_DEVICE, _DTYPE, _WEIGHTS, _MODEL_DIR, _TORCH_THREADS and _BATCH_SIZE.

        Limits are ADLOOM_CACHE_MB and ADLOOM_MODEL_MB.
        """
        source = os.environ if environ is None else environ
        dtype = source.get("ADLOOM_DTYPE", "") or "auto"
        if dtype not in DTYPES:
            raise ConfigError("ADLOOM_DTYPE", f"{dtype!r} is not one of {', '.join(DTYPES)}.")
        weights = source.get("ADLOOM_WEIGHTS", "") or "auto"
        if weights not in ("auto", *WeightPrecision):
            known = ", ".join(("auto", *WeightPrecision))
            raise ConfigError("ADLOOM_WEIGHTS", f"{weights!r} is not one of {known}.")
        model_dir = source.get("ADLOOM_MODEL_DIR", "")
        cache_mb = _count(source, "ADLOOM_CACHE_MB", "mebibytes", lowest=0)
        model_mb = _count(source, "ADLOOM_MODEL_MB", "mebibytes")
        return cls(
            device=source.get("ADLOOM_DEVICE", "") or "auto",
            dtype=dtype,
            model_dir=Path(model_dir).expanduser() if model_dir else BUNDLED_MODEL_DIR,
            torch_threads=_count(source, "ADLOOM_TORCH_THREADS", "threads"),
            batch_size=_count(source, "ADLOOM_BATCH_SIZE", "clips") or cls.batch_size,
            model_bytes=None if model_mb is None else model_mb * MEBIBYTE,
            weights=None if weights == "auto" else WeightPrecision(weights),
            cache_bytes=cls.cache_bytes if cache_mb is None else cache_mb * MEBIBYTE,
        )


@dataclass(frozen=True, kw_only=True)
class HubConfig:
    """Where published checkpoints are fetched, and who asks.

    Attributes:
        endpoint: the hub, or a mirror of it.
        token: for gated models; None uses the one that `hf auth login` stored, if any.
    """

    endpoint: str = HUB_ENDPOINT
    token: str | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> HubConfig:
        """Read HF_ENDPOINT and HF_TOKEN, which other programs of the hub read too."""
        source = os.environ if environ is None else environ
        return cls(
            endpoint=(source.get("HF_ENDPOINT", "") or HUB_ENDPOINT).rstrip("/"),
            token=source.get("HF_TOKEN", "").strip() or None,
        )


def train_dir(environ: Mapping[str, str] | None = None) -> Path | None:
    """Where training keeps caches and states (ADLOOM_TRAIN_DIR); None when it is unset."""
    source = os.environ if environ is None else environ
    folder = source.get("ADLOOM_TRAIN_DIR", "")
    return Path(folder).expanduser() if folder else None


def _count(source: Mapping[str, str], name: str, noun: str, *, lowest: int = 1) -> int | None:
    text = source.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < lowest:
        raise ConfigError(name, f"{text!r} is not a number of {noun} ({lowest} or more).")
    return int(text)
