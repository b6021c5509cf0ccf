"""Memory plans: what is chosen for each size of memory, in which order, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.hardware import find_gpu_bytes
from engine.memory import (
    MemoryNeeds,
    MemoryPlan,
    MemoryThere,
    PartNeeds,
    WeightPrecision,
    find_needs,
    model_budget,
    plan_memory,
)
from engine.registry import list_models

GIB = 1 << 30
HOST = 256 * GIB


def _plan(model_id: str, device_gib: int, **changes: object) -> MemoryPlan:
    needs = find_needs(model_id)
    assert needs is not None
    asked = changes.pop("asked", None)
    there = MemoryThere(host_bytes=HOST, device_bytes=device_gib * GIB)
    return plan_memory(needs, replace(there, **changes), asked=asked)  # type: ignore[arg-type]


# Which parts wait in host memory; a "+" says that the VAE works in tiles.
TABLE = {
    "wan2.1-t2v-1.3b": {24: "", 48: "", 80: "", 141: ""},
    "wan2.2-ti2v-5b": {24: "T +", 48: "", 80: "", 141: ""},
    "wan2.2-t2v-a14b": {24: "T X X2", 48: "T X X2", 80: "T", 141: ""},
    "wan2.1-vace-14b": {24: "T X", 48: "T X", 80: "", 141: ""},
    "ltx-2": {24: "T X", 48: "T", 80: "", 141: ""},
    "flux.1-dev": {24: "T T2 X", 48: "", 80: "", 141: ""},
    "flux.2-dev": {24: "T X", 48: "T X", 80: "T", 141: ""},
    "qwen-image": {24: "T X", 48: "T", 80: "", 141: ""},
    "hidream-i1-full": {24: "T T2 T3 T4 X", 48: "T T2 T3 T4", 80: "", 141: ""},
}


def _short(plan: MemoryPlan) -> str:
    names = [
        name.replace("text_encoder", "T").replace("transformer", "X").replace("_", "")
        for name in plan.offloaded
    ]
    return " ".join([*names, *["+"] * plan.is_tiled])


@pytest.mark.parametrize(
    ("model_id", "device_gib", "expected"),
    [(model, size, short) for model, row in TABLE.items() for size, short in row.items()],
)
def test_the_plan_for_each_model_and_size(model_id: str, device_gib: int, expected: str) -> None:
    plan = _plan(model_id, device_gib)
    assert (_short(plan), plan.fits) == (expected, True)
    assert plan.weights is WeightPrecision.FULL
    assert plan.peak_bytes < device_gib * GIB
    assert plan.changes_pixels == plan.is_tiled
    assert plan.reason.endswith(" GB.")


def test_every_model_but_the_built_in_has_computed_needs() -> None:
    known = {spec.model_id for spec in list_models() if find_needs(spec.model_id) is not None}
    assert known == {spec.model_id for spec in list_models()} - {"adloom-tiny"}


PARTS = (
    PartNeeds(
        name="text_encoder",
        num_parameters=4_000_000_000,
        largest_block=100_000_000,
        outside_blocks=200_000_000,
        bytes_per_parameter=2,
    ),
    PartNeeds(
        name="transformer",
        num_parameters=10_000_000_000,
        largest_block=250_000_000,
        outside_blocks=0,
        bytes_per_parameter=2,
    ),
    PartNeeds(
        name="vae",
        num_parameters=100_000_000,
        largest_block=0,
        outside_blocks=100_000_000,
        bytes_per_parameter=2,
    ),
)
NEEDS = MemoryNeeds(
    parts=PARTS,
    denoise_bytes=2_000_000_000,
    decode_bytes=6_000_000_000,
    decode_tile_bytes=1_000_000_000,
)


def _there(budget_gb: float, *, host_gb: float = 1000, can_quantize: bool = False) -> MemoryThere:
    """A GPU of which so much is left when what drivers and gaps take is gone."""
    device_bytes = int((budget_gb * 1e9 + 1e9) / 0.94) + 1
    return MemoryThere(
        host_bytes=int(host_gb * 1e9 / 0.8) + 1,
        device_bytes=device_bytes,
        can_quantize=can_quantize,
    )


@pytest.mark.parametrize(
    ("budget_gb", "offloaded", "is_tiled", "peak_gb"),
    [
        # Weights of 28.2 GB and the decode's 6.
        (34.2, (), False, 34.2),
        (34.1, ("text_encoder",), False, 26.2),
        (26.1, ("text_encoder", "transformer"), False, 6.2),
        # A block that computes and one on its way are 1 GB, the forward's own work 2.
        (6.1, ("text_encoder", "transformer"), True, 3.2),
    ],
)
def test_what_leaves_pixels_alone_comes_first(
    budget_gb: float, offloaded: tuple[str, ...], is_tiled: bool, peak_gb: float
) -> None:
    plan = plan_memory(NEEDS, _there(budget_gb))
    assert (plan.offloaded, plan.is_tiled, plan.fits) == (offloaded, is_tiled, True)
    assert plan.peak_bytes == pytest.approx(peak_gb * 1e9)


def test_weights_are_rounded_by_themselves_only_where_nothing_else_fits() -> None:
    host_is_small = _there(20, host_gb=10, can_quantize=True)
    plan = plan_memory(NEEDS, host_is_small)
    assert plan.weights is WeightPrecision.INT8
    assert plan.offloaded == ("text_encoder",)
    assert plan.fits and plan.changes_pixels
    assert plan.reason == (
        "All together would take 34.2 GB, so the transformer keeps its weights in int8 and"
        " text_encoder waits in host memory, which takes 16.2 of 20.0 GB."
    )
    without = plan_memory(NEEDS, replace(host_is_small, can_quantize=False))
    assert not without.fits
    assert without.reason == (
        "It does not fit: where text_encoder, transformer wait in host memory, it takes 28.0 GB of"
        " the host's 10.0. It would with int8 weights: pip install 'adloom[quantization]'."
    )
    tiny = plan_memory(NEEDS, _there(3, host_gb=10))
    assert tiny.reason == (
        "It does not fit: where text_encoder, transformer wait in host memory and the VAE works in"
        " tiles, it takes 3.2 GB of the GPU's 3.0 and 28.0 GB of the host's 10.0."
    )
    roomy = plan_memory(NEEDS, replace(host_is_small, host_bytes=HOST))
    assert roomy.weights is WeightPrecision.FULL


def test_weights_are_rounded_where_that_was_asked_for() -> None:
    plan = plan_memory(NEEDS, _there(100), asked=WeightPrecision.FP8)
    assert plan.weights is WeightPrecision.FP8
    assert plan.offloaded == ()
    assert plan.peak_bytes == pytest.approx(24.2e9)
    assert plan.reason == (
        "As was asked, the transformer keeps its weights in fp8, which takes 24.2 of 100.0 GB."
    )
    full = plan_memory(NEEDS, _there(20, host_gb=10, can_quantize=True), asked=WeightPrecision.FULL)
    assert (full.weights, full.fits) == (WeightPrecision.FULL, False)


def test_a_cpu_holds_all_in_float32_or_says_that_it_cannot() -> None:
    plan = plan_memory(NEEDS, MemoryThere(host_bytes=100_000_000_000))
    assert plan.fits and plan.offloaded == ()
    assert plan.reason == "It takes 62.4 of 80.0 GB of host memory in float32."
    small = plan_memory(NEEDS, MemoryThere(host_bytes=16_000_000_000))
    assert not small.fits
    assert small.reason.startswith("It does not fit: it takes 62.4 of 12.8 GB")


def test_loaded_models_may_take_half_of_a_cpus_memory_or_a_gpu() -> None:
    assert model_budget(MemoryThere(host_bytes=16 * GIB)) == 8 * GIB
    assert model_budget(_there(40)) == pytest.approx(40e9)


@pytest.mark.parametrize(
    ("answer", "found"),
    [("echo 81559; echo 81559", 81559 << 20), ("exit 9", None), ("echo unknown", None)],
)
def test_the_driver_is_asked_for_the_gpus_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, found: int | None
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_gpu_bytes() == found
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpu_bytes() is None


def test_the_precision_of_weights_is_a_setting() -> None:
    assert EngineConfig.from_environment({}).weights is None
    asked = EngineConfig.from_environment({"ADLOOM_WEIGHTS": "int8", "ADLOOM_MODEL_MB": "3"})
    assert (asked.weights, asked.model_bytes) == (WeightPrecision.INT8, 3 << 20)
    with pytest.raises(ConfigError, match="ADLOOM_WEIGHTS: 'int3' is not one of auto, full"):
        EngineConfig.from_environment({"ADLOOM_WEIGHTS": "int3"})


def test_the_page_shows_the_plans_that_are_made() -> None:
    page = (Path(__file__).parents[3] / "docs" / "weights.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    shown = {name.strip("`"): cells for name, *cells in rows if len(cells) == 4}
    assert set(shown) == {spec.model_id for spec in list_models()} - {"adloom-tiny"}
    for model_id, cells in shown.items():
        for device_gib, cell in zip((24, 48, 80, 141), cells, strict=True):
            plan = _plan(model_id, device_gib)
            assert cell.endswith(f", {plan.peak_bytes / 1e9:.0f} GB"), (model_id, device_gib)
            names = " ".join(plan.offloaded)
            assert ("text" in cell, "transformer" in cell, "tiles" in cell) == (
                "text" in names,
                "transformer" in names,
                plan.is_tiled,
            )
