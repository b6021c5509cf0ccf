"""Puts a pipeline's parts where a memory plan wants them, by diffusers' own means."""

from __future__ import annotations

from typing import Any

import diffusers
import psutil
import torch
from diffusers.hooks import apply_group_offloading

from engine.errors import ConfigError
from engine.hardware import can_quantize
from engine.memory import MemoryPlan, MemoryThere, WeightPrecision


def memory_there(device: torch.device) -> MemoryThere:
    """The memory of this machine and of the device."""
    device_bytes = None
    if device.type == "cuda":
        device_bytes = torch.cuda.get_device_properties(device).total_memory
    return MemoryThere(
        host_bytes=psutil.virtual_memory().total,
        device_bytes=device_bytes,
        can_quantize=can_quantize(),
    )


def quantization(plan: MemoryPlan | None, pipeline_class: Any) -> dict[str, Any]:
    """Arguments for `from_pretrained` that round the transformers' weights while they load.

    ConfigError where torchao, which does it, is not installed.
    """
    if plan is None or plan.weights is WeightPrecision.FULL:
        return {}
    try:
        # Local import: an optional package, which few machines need.
        from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig
    except ImportError:
        raise ConfigError(
            "ADLOOM_WEIGHTS",
            f"{plan.weights} weights need torchao: pip install 'adloom[quantization]'.",
        ) from None
    make = Int8WeightOnlyConfig if plan.weights is WeightPrecision.INT8 else Float8WeightOnlyConfig
    known = pipeline_class._get_signature_types()
    return {
        "quantization_config": diffusers.PipelineQuantizationConfig(
            quant_mapping={
                name: diffusers.TorchAoConfig(make(version=2))
                for name in ("transformer", "transformer_2")
                if name in known
            }
        )
    }


def place(pipeline: Any, device: torch.device, plan: MemoryPlan | None) -> None:
    """Move the parts to the device, but for those that come to it block by block."""
    waiting = plan.offloaded if plan is not None else ()
    for name, part in pipeline.components.items():
        if not isinstance(part, torch.nn.Module):
            continue
        if name not in waiting:
            part.to(device)
            continue
        # Blocks of text encoders lie too deep for diffusers to find them as such.
        by_block = {"offload_type": "block_level", "num_blocks_per_group": 1}
        apply_group_offloading(
            part,
            onload_device=device,
            offload_device=torch.device("cpu"),
            # While one block computes, the next one is on its way.
            use_stream=device.type == "cuda",
            **(by_block if name.startswith("transformer") else {"offload_type": "leaf_level"}),
        )
    if plan is not None and plan.is_tiled:
        pipeline.vae.enable_tiling()
