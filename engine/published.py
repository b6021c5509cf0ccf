"""Which files of a published repository a model's pipeline needs; pickles are never among them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final

from engine.checkpoint import PIPELINE_SUFFIXES
from engine.errors import HubError
from engine.snapshots import LockedFile

INDEX_NAME: Final = "model_index.json"
_PICKLES: Final = frozenset({".bin", ".ckpt", ".h5", ".msgpack", ".pkl", ".pt", ".pth"})
# "model-00001-of-00002.safetensors" is a shard; "model.fp16.safetensors" a variant nobody loads.
_SHARD: Final = re.compile(r"-\d{5}-of-\d{5}$")


def pipeline_files(
    hub_id: str, files: Sequence[LockedFile], index: Mapping[str, Any]
) -> list[LockedFile]:
    """The index, the licence and the parts that the index names; HubError for pickled weights."""
    parts = [name for name, value in index.items() if isinstance(value, list) and value[0]]
    chosen = [
        file for file in files if file.path == INDEX_NAME or file.path.upper().startswith("LICENSE")
    ]
    for part in parts:
        inside = [file for file in files if PurePosixPath(file.path).parts[0] == part]
        _refuse_pickles(hub_id, part, inside)
        chosen += [file for file in inside if _is_needed(file)]
    return chosen


def borrowed_files(hub_id: str, files: Sequence[LockedFile], part: str) -> list[LockedFile]:
    """A part that is a repository of its own: its top folder, or its tokenizer's files alone."""
    top = [file for file in files if "/" not in file.path]
    if part.startswith("tokenizer"):
        return [file for file in top if _is_needed(file) and "token" in file.path]
    _refuse_pickles(hub_id, part, top)
    return [file for file in top if _is_needed(file) and "token" not in file.path]


def put_below(file: LockedFile, part: str) -> LockedFile:
    """The file as it is named in the model's folder."""
    return replace(file, path=f"{part}/{file.path}")


def _is_needed(file: LockedFile) -> bool:
    path = PurePosixPath(file.path)
    if path.suffix != ".safetensors":
        return path.suffix in PIPELINE_SUFFIXES
    return "." not in _SHARD.sub("", path.stem)


def _refuse_pickles(hub_id: str, part: str, files: Sequence[LockedFile]) -> None:
    suffixes = {PurePosixPath(file.path).suffix for file in files if _is_needed(file)}
    pickles = [file.path for file in files if PurePosixPath(file.path).suffix in _PICKLES]
    if pickles and ".safetensors" not in suffixes:
        raise HubError(
            f"{hub_id} has {part} as a pickle only ({pickles[0]}), and loading a pickle runs code"
            " that is in it. Take a revision with safetensors (--revision)."
        )
