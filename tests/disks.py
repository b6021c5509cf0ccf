"""A real, very small file system, for tests of what happens when a disk is full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, *, size_bytes: int) -> Iterator[Path]:
    """A tmpfs of that size mounted below `folder`; skips the test where mounting is refused."""
    root = folder / "small-disk"
    root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(root)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", "") or error
        pytest.skip(f"a small disk needs the right to mount: {detail}".strip())
    try:
        yield root
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)
