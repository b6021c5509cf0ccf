"""What a model needs in memory, and how it is put into the memory there is; no torch.

What leaves the pixels as they are comes first: parts wait in host memory and come to the GPU block
by block. The VAE works in tiles, or weights are rounded to eight bits, only where nothing else fits
or where that was asked for. Figures are for the model's default settings and one clip at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

# Written by `python -m bench.memory_needs`, which says how the figures were computed.
NEEDS_FILE: Final = Path(__file__).parent / "models" / "memory_needs.json"
GIGABYTE: Final = 1e9
# What the driver, libraries' workspaces and gaps between allocations take of a GPU.
_RESERVED_SHARE: Final = 0.06
_RESERVED_BYTES: Final = 1_000_000_000
# The operating system and the program itself want some of the host's memory too.
_HOST_SHARE: Final = 0.8
# A transformer whose forward could not be computed without a device gets this much for it.
_UNKNOWN_DENOISE_BYTES: Final = 2_000_000_000
_FLOAT32_BYTES: Final = 4


class WeightPrecision(StrEnum):
    """What the transformers' weights are kept in; computation stays in the engine's precision."""

    FULL = "full"
    INT8 = "int8"
    FP8 = "fp8"


@dataclass(frozen=True, kw_only=True)
class PartNeeds:
    """A part of a pipeline. Blocks can come to the GPU one by one, what is outside them cannot."""

    name: str
    num_parameters: int
    largest_block: int
    outside_blocks: int
    bytes_per_parameter: int

    @property
    def is_denoiser(self) -> bool:
        return self.name.startswith("transformer")

    @property
    def is_text_encoder(self) -> bool:
        return self.name.startswith("text_encoder")


@dataclass(frozen=True, kw_only=True)
class MemoryNeeds:
    """A model's parts, and what a forward and a decode hold besides; None was not computed."""

    parts: tuple[PartNeeds, ...]
    denoise_bytes: int | None
    decode_bytes: int
    decode_tile_bytes: int

    @property
    def num_parameters(self) -> int:
        return sum(part.num_parameters for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class MemoryThere:
    """The memory of a machine; `device_bytes` is a GPU's, None for a CPU.

    `can_quantize` says that torchao is installed.
    """

    host_bytes: int
    device_bytes: int | None = None
    can_quantize: bool = False


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """How a model is put into memory; `reason` is a sentence for people.

    `offloaded` parts wait in host memory. `peak_bytes` is the most that is held on the device.
    """

    weights: WeightPrecision
    offloaded: tuple[str, ...]
    is_tiled: bool
    peak_bytes: int
    fits: bool
    reason: str

    @property
    def changes_pixels(self) -> bool:
        """Whether renders are no longer those of the plain pipeline with its own weights."""
        return self.is_tiled or self.weights is not WeightPrecision.FULL


def find_needs(model_id: str) -> MemoryNeeds | None:
    """The computed figures of a model; None for one that is too small to need any."""
    return _read_needs().get(model_id)


def plan_memory(
    needs: MemoryNeeds, there: MemoryThere, *, asked: WeightPrecision | None = None
) -> MemoryPlan:
    """The first way that fits, of those that leave pixels alone before those that do not.

    `asked` names the precision of weights; None leaves it full, and takes int8 where no other way
    is left. Where none fits, the plan is the nearest one and says what it lacks.
    """
    if there.device_bytes is None:
        return _plan_for_cpu(needs, there)
    budget, host_budget = _device_budget(there.device_bytes), _host_budget(there)
    whole = _Candidate(needs, asked or WeightPrecision.FULL)
    nearest: _Candidate | None = None
    for candidate in _candidates(needs, there, asked):
        if candidate.peak_bytes <= budget and candidate.host_bytes <= host_budget:
            return candidate.plan(candidate.reason(budget, instead_of=whole), fits=True)
        if nearest is None or (nearest.peak_bytes > budget and candidate.weights is whole.weights):
            nearest = candidate
    assert nearest is not None, "there is always a way to try"
    reason = nearest.misfit(budget, host_budget)
    if asked is None and not there.can_quantize:
        rounded = plan_memory(needs, replace(there, can_quantize=True))
        hint = " It would with int8 weights: pip install 'adloom[quantization]'."
        reason += hint * rounded.fits
    return nearest.plan(reason, fits=False)


def model_budget(there: MemoryThere) -> int:
    """The most that loaded models may take together where no limit was set.

    On a CPU that is half of the memory: the rest of Adloom, and renders, want some too.
    """
    if there.device_bytes is None:
        return there.host_bytes // 2
    return _device_budget(there.device_bytes)


@dataclass(frozen=True)
class _Candidate:
    """One way to put a model into memory, and what it takes."""

    needs: MemoryNeeds
    weights: WeightPrecision
    offloaded: tuple[PartNeeds, ...] = ()
    is_tiled: bool = False

    @property
    def peak_bytes(self) -> int:
        """The most of three stages: reading prompts, denoising, decoding."""
        resident = sum(self._size(part) for part in self.needs.parts if part not in self.offloaded)
        text = self._streamed(part for part in self.offloaded if part.is_text_encoder)
        denoiser = self._streamed(part for part in self.offloaded if part.is_denoiser)
        denoise = self.needs.denoise_bytes or _UNKNOWN_DENOISE_BYTES
        decode = self.needs.decode_tile_bytes if self.is_tiled else self.needs.decode_bytes
        return resident + max(text, denoiser + denoise, decode)

    @property
    def host_bytes(self) -> int:
        return sum(self._size(part) for part in self.offloaded)

    def plan(self, reason: str, *, fits: bool) -> MemoryPlan:
        return MemoryPlan(
            weights=self.weights,
            offloaded=tuple(part.name for part in self.offloaded),
            is_tiled=self.is_tiled,
            peak_bytes=self.peak_bytes,
            fits=fits,
            reason=reason,
        )

    def _size(self, part: PartNeeds) -> int:
        return part.num_parameters * self._itemsize(part)

    def _itemsize(self, part: PartNeeds) -> int:
        is_quantized = part.is_denoiser and self.weights is not WeightPrecision.FULL
        return 1 if is_quantized else part.bytes_per_parameter

    def _streamed(self, parts: Iterator[PartNeeds]) -> int:
        """What a part that waits in host memory takes while it runs.

        That is one block that computes, the next one on its way, and what is outside of blocks.
        """
        return max(
            (
                (part.outside_blocks + 2 * part.largest_block) * self._itemsize(part)
                for part in parts
            ),
            default=0,
        )

    def reason(self, budget: int, *, instead_of: _Candidate) -> str:
        """Why this one is taken, and what it takes of the GPU's memory."""
        peak = f"{self.peak_bytes / GIGABYTE:.1f} of {budget / GIGABYTE:.1f} GB"
        if self == _Candidate(self.needs, WeightPrecision.FULL):
            return f"All parts stay on the GPU, which takes {peak}."
        if instead_of.peak_bytes <= budget:
            return f"As was asked, {self._measures}, which takes {peak}."
        whole = f"{instead_of.peak_bytes / GIGABYTE:.1f} GB"
        return f"All together would take {whole}, so {self._measures}, which takes {peak}."

    @property
    def _measures(self) -> str:
        words = []
        if self.weights is not WeightPrecision.FULL:
            words.append(f"the transformer keeps its weights in {self.weights}")
        if self.offloaded:
            names = ", ".join(part.name for part in self.offloaded)
            words.append(f"{names} wait{'s' * (len(self.offloaded) == 1)} in host memory")
        if self.is_tiled:
            words.append("the VAE works in tiles")
        return " and ".join(words) or "all parts stay on the GPU"

    def misfit(self, budget: int, host_budget: int) -> str:
        """What of it does not fit."""
        lacks = []
        if self.peak_bytes > budget:
            lacks.append(
                f"{self.peak_bytes / GIGABYTE:.1f} GB of the GPU's {budget / GIGABYTE:.1f}"
            )
        if self.host_bytes > host_budget:
            lacks.append(
                f"{self.host_bytes / GIGABYTE:.1f} GB of the host's {host_budget / GIGABYTE:.1f}"
            )
        return f"It does not fit: where {self._measures}, it takes {' and '.join(lacks)}."


def _candidates(
    needs: MemoryNeeds, there: MemoryThere, asked: WeightPrecision | None
) -> Iterator[_Candidate]:
    texts = tuple(part for part in needs.parts if part.is_text_encoder)
    denoisers = tuple(part for part in needs.parts if part.is_denoiser)
    # Prompts are read once and denoisers run in every step, so text encoders leave first.
    steps = [(), *(texts + denoisers[:count] for count in range(len(denoisers) + 1))]
    precisions = [asked or WeightPrecision.FULL]
    if asked is None and there.can_quantize:
        precisions.append(WeightPrecision.INT8)
    for weights in precisions:
        for is_tiled in (False, True):
            for offloaded in steps:
                yield _Candidate(needs, weights, offloaded, is_tiled)


def _plan_for_cpu(needs: MemoryNeeds, there: MemoryThere) -> MemoryPlan:
    size_bytes = needs.num_parameters * _FLOAT32_BYTES
    # Activations take twice what they do in half precision; a decode is in float32 anyway.
    working = max(2 * (needs.denoise_bytes or _UNKNOWN_DENOISE_BYTES), needs.decode_bytes)
    peak_bytes, budget = size_bytes + working, _host_budget(there)
    fits = peak_bytes <= budget
    amount = f"{peak_bytes / GIGABYTE:.1f} of {budget / GIGABYTE:.1f} GB of host memory"
    return MemoryPlan(
        weights=WeightPrecision.FULL,
        offloaded=(),
        is_tiled=False,
        peak_bytes=peak_bytes,
        fits=fits,
        reason=f"{'It' if fits else 'It does not fit: it'} takes {amount} in float32.",
    )


def _device_budget(device_bytes: int) -> int:
    return int(device_bytes * (1 - _RESERVED_SHARE)) - _RESERVED_BYTES


def _host_budget(there: MemoryThere) -> int:
    return int(there.host_bytes * _HOST_SHARE)


@lru_cache(maxsize=1)
def _read_needs() -> dict[str, MemoryNeeds]:
    models = json.loads(NEEDS_FILE.read_text(encoding="utf-8"))["models"]
    return {
        model_id: MemoryNeeds(
            parts=tuple(PartNeeds(**part) for part in data["parts"]),
            denoise_bytes=data["denoise_bytes"],
            decode_bytes=data["decode_bytes"],
            decode_tile_bytes=data["decode_tile_bytes"],
        )
        for model_id, data in models.items()
    }
