"""Which column of a table fills which placeholder: by name, from memory, or as a suggestion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from app.errors import InvalidInput
from app.services.table_dialect import normalise_name

ROW_ID: Final = "row_id"


def map_columns(header: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """Column by placeholder, where they agree; case, blanks, hyphens and _ do not count."""
    columns = {normalise_name(column): column for column in header}
    found = {name: columns.get(normalise_name(name)) for name in names}
    return {name: column for name, column in found.items() if column is not None}


def suggest_columns(
    header: Sequence[str], names: Sequence[str], *, remembered: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Columns that were `remembered`, agree by name, or are like it; each is taken once."""
    known = {normalise_name(column): column for column in header}
    before = {
        name: known[normalise_name(column)]
        for name, column in (remembered or {}).items()
        if name in names and normalise_name(column) in known
    }
    found = map_columns(header, names) | before
    taken = set(found.values())
    for name in names:
        near = None if name in found else suggest_column(name, header)
        if near is not None and near not in taken:
            found[name] = near
            taken.add(near)
    return found


def find_row_id_column(header: Sequence[str]) -> str | None:
    """The column that names the rows, if there is one."""
    return next((column for column in header if normalise_name(column) == ROW_ID), None)


def check_columns(header: Sequence[str], columns: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise InvalidInput that lists the placeholders without a column and the nearest names."""
    problems: list[str] = []
    first = ""
    for name in names:
        column = columns.get(name)
        if column in header:
            continue
        first = first or name
        what = f"there is no column “{column}”" if column else f"no column for {{{{ {name} }}}}"
        near = suggest_column(name, header)
        problems.append(f"{what}; did you mean “{near}”?" if near else what)
    if problems:
        raise InvalidInput(
            f"The table does not fit the prompt: {'; '.join(problems)}. Its columns are"
            f" {', '.join(header)}.",
            field=first,
        )


def suggest_column(name: str, header: Sequence[str]) -> str | None:
    """The column whose name is most like that of a placeholder."""
    columns = {normalise_name(column): column for column in header}
    wanted = normalise_name(name)
    near = get_close_matches(wanted, columns, n=1, cutoff=0.6)
    if near:
        return columns[near[0]]
    # “city_name” for “city”, and the other way round.
    return next(
        (column for key, column in columns.items() if wanted in key or (key and key in wanted)),
        None,
    )
