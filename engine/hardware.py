"""What memory this machine has, found out without torch."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess

import psutil

from engine.memory import MemoryThere


def memory_of_this_machine() -> MemoryThere:
    """The host's memory, and that of the first GPU if there is one."""
    return MemoryThere(
        host_bytes=psutil.virtual_memory().total,
        device_bytes=find_gpu_bytes(),
        can_quantize=can_quantize(),
    )


def can_quantize() -> bool:
    """Whether torchao, which rounds weights, is installed."""
    return importlib.util.find_spec("torchao") is not None


def find_gpu_bytes() -> int | None:
    """The memory of the first NVIDIA GPU, asked of its driver; None where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = ["--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            [program, *query], capture_output=True, text=True, check=True, timeout=20
        )
        return int(done.stdout.split()[0]) << 20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
