"""What a new version of a table changes: rows added, changed, removed and left as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from app.services.table_columns import find_row_id_column
from app.services.table_dialect import normalise_name
from app.services.table_files import UploadRow

MAX_EXAMPLES: Final = 20

Rows = Callable[[], Iterator[UploadRow]]


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a table; `read` starts its rows anew at each call."""

    header: Sequence[str]
    read: Rows


@dataclass(frozen=True, kw_only=True)
class CellChange:
    """One cell that differs between two versions."""

    row_id: str
    column: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class TableChanges:
    """Rows by their `row_id` against an earlier version, with the first of each kind."""

    filename: str
    added: int
    changed: int
    removed: int
    unchanged: int
    new_columns: tuple[str, ...]
    lost_columns: tuple[str, ...]
    added_ids: tuple[str, ...]
    removed_ids: tuple[str, ...]
    cells: tuple[CellChange, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        cells = tuple(CellChange(**item) for item in data["cells"])
        lists = {
            name: tuple(data[name])
            for name in ("new_columns", "lost_columns", "added_ids", "removed_ids")
        }
        return cls(**{**data, **lists, "cells": cells})


def compare(old: Version, new: Version, *, filename: str) -> TableChanges | None:
    """The changes since `old`, or None unless both name their rows; two passes over `old`.

    Rows are compared in the columns that both have; rows without an id count as added or
    removed.
    """
    old_id, new_id = find_row_id_column(old.header), find_row_id_column(new.header)
    if old_id is None or new_id is None:
        return None
    old_columns = {normalise_name(name): name for name in old.header if name != old_id}
    new_columns = {normalise_name(name): name for name in new.header if name != new_id}
    shared = [key for key in new_columns if key in old_columns]
    pairs = [(old_columns[key], new_columns[key]) for key in shared]
    # One number per row, so that a large table fits; the ids are the keys.
    known = {
        row.cells[old_id]: hash(tuple(row.cells[name] for name, _ in pairs)) for row in old.read()
    }
    counts = {"added": 0, "changed": 0, "unchanged": 0}
    added: list[str] = []
    changed: dict[str, Mapping[str, str]] = {}
    for row in new.read():
        row_id = row.cells[new_id]
        before = known.pop(row_id, None) if row_id else None
        if before is None:
            counts["added"] += 1
            added.append(row_id) if len(added) < MAX_EXAMPLES else None
        elif before == hash(tuple(row.cells[name] for _, name in pairs)):
            counts["unchanged"] += 1
        else:
            counts["changed"] += 1
            if len(changed) < MAX_EXAMPLES:
                changed[row_id] = row.cells
    return TableChanges(
        filename=filename,
        **counts,
        removed=len(known),
        new_columns=tuple(name for key, name in new_columns.items() if key not in old_columns),
        lost_columns=tuple(name for key, name in old_columns.items() if key not in new_columns),
        added_ids=tuple(added),
        removed_ids=tuple(list(known)[:MAX_EXAMPLES]),
        cells=tuple(_changed_cells(old, old_id, changed, pairs)),
    )


def _changed_cells(
    old: Version,
    old_id: str,
    changed: Mapping[str, Mapping[str, str]],
    pairs: Sequence[tuple[str, str]],
) -> Iterator[CellChange]:
    if not changed:
        return
    left = len(changed)
    for row in old.read():
        after = changed.get(row.cells[old_id])
        if after is None:
            continue
        for old_name, new_name in pairs:
            if row.cells[old_name] != after[new_name]:
                yield CellChange(
                    row_id=row.cells[old_id],
                    column=new_name,
                    before=row.cells[old_name],
                    after=after[new_name],
                )
        left -= 1
        if not left:
            return
