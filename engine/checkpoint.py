"""What a checkpoint folder holds: is it whole, and the fingerprint of its files; no torch."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError
from engine.snapshots import pulled_digests, require_locked_files

# The files that decide the pixels: weights, configurations, tokenizers. Not cards or samples.
PIPELINE_SUFFIXES = frozenset({".jinja", ".json", ".model", ".safetensors", ".txt"})
_HASH_CHUNK_BYTES = 1 << 20


def check_checkpoint(folder: Path, pipeline_classes: Collection[str]) -> None:
    """Raise CheckpointError unless `folder` is a whole diffusers checkpoint of a known pipeline.

    Whole means: `model_index.json` names one of `pipeline_classes`, each component it names has
    its folder, each safetensors file has the length that its header promises, and each file of a
    pulled checkpoint the length that the hub said.
    """
    require_locked_files(folder)
    index = _read_index(folder)
    found = index.get("_class_name")
    if found not in pipeline_classes:
        wanted = " or ".join(sorted(pipeline_classes))
        raise CheckpointError(
            folder, f"this is a checkpoint of {found}, but the model needs {wanted}."
        )
    for name, value in index.items():
        is_component = isinstance(value, list) and value[:1] != [None]
        if is_component and not (folder / name).is_dir():
            raise CheckpointError(folder / name, "this part of the checkpoint is missing.")
    for path in sorted(folder.rglob("*.safetensors")):
        _check_safetensors(path)


def fingerprint(folder: Path) -> str:
    """SHA-256 over names and contents of the files that decide the pixels.

    Those are the pipeline's parts; other folders, such as a judge of its renders, may change.
    Contents are read again only when a file's time or size changed since the last call. Of large
    files that nobody touched since they were pulled, the hub's SHA-256 is taken without reading.
    """
    digest = hashlib.sha256()
    parts = [name for name in sorted(_read_index(folder)) if not name.startswith("_")]
    files = [path for name in parts for path in sorted((folder / name).rglob("*"))]
    pulled = pulled_digests(folder)
    for path in (folder / "model_index.json", *files):
        if path.suffix in PIPELINE_SUFFIXES and path.is_file():
            status = path.stat()
            name = path.relative_to(folder).as_posix()
            digest.update(name.encode() + b"\0")
            digest.update(
                pulled.get(name) or _file_digest(path, status.st_mtime_ns, status.st_size)
            )
    return digest.hexdigest()


def count_parameters(folder: Path) -> int:
    """Numbers in the pipeline's weights, of which each file's header tells."""
    parts = [name for name in _read_index(folder) if not name.startswith("_")]
    files = [path for name in parts for path in (folder / name).glob("*.safetensors")]
    return sum(
        math.prod(entry["shape"]) for path in files for entry in _read_header(path)[0].values()
    )


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / "model_index.json"
    if not path.is_file():
        raise CheckpointError(
            folder,
            "this is not a diffusers checkpoint: it has no model_index.json. Point to the folder"
            " that holds model_index.json and its parts (transformer/, vae/, ...).",
        )
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(path, f"is not valid JSON ({error}). Copy it anew.") from None
    if not isinstance(index, dict):
        raise CheckpointError(path, "does not describe a pipeline. Copy it anew.")
    return index


def _check_safetensors(path: Path) -> None:
    """Compare a file's length with the end of its last tensor (the safetensors format's header)."""
    size_bytes = path.stat().st_size
    header, header_bytes = _read_header(path)
    try:
        data_bytes = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    except (KeyError, TypeError, IndexError):
        raise _unreadable(path) from None
    expected_bytes = 8 + header_bytes + data_bytes
    if size_bytes != expected_bytes:
        raise CheckpointError(
            path,
            f"is {size_bytes} bytes long, but its header promises {expected_bytes}; it was cut off"
            " or damaged on its way here. Copy it anew.",
        )


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """What a safetensors file says of its tensors, by name, and the bytes that this takes."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        header_bytes = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size_bytes
        header_text = file.read(header_bytes) if header_bytes <= size_bytes - 8 else b""
    try:
        header = json.loads(header_text)
    except ValueError:
        raise _unreadable(path) from None
    if not isinstance(header, dict):
        raise _unreadable(path)
    header.pop("__metadata__", None)
    return header, header_bytes


def _unreadable(path: Path) -> CheckpointError:
    return CheckpointError(
        path, "has no readable safetensors header; it is damaged or cut off. Copy it anew."
    )


@lru_cache(maxsize=1024)
def _file_digest(path: Path, mtime_ns: int, size_bytes: int) -> bytes:
    # Time and size are unused inside: they are part of the cache's key.
    del mtime_ns, size_bytes
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.digest()
