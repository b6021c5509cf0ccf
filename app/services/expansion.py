"""How values become combinations: every one, line by line, or a seeded sample; pure and resumable.

Each mode gives the combination of any ordinal without those before it, so an expansion that was
interrupted goes on from its cursor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from app.errors import InvalidInput
from app.models import ExpansionMode
from app.services.value_rules import AllowedCombinations, RuledValues

Values = Mapping[str, Sequence[str]]

_ROUNDS: Final = 4
_MASK: Final = 2**64 - 1
# Half the bits of an index are mixed as one 64-bit word.
_MAX_PRODUCT: Final = 2**128


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRow:
    """One row of an upload: values by parameter, other columns by their header."""

    values: Mapping[str, str]
    passthrough: Mapping[str, str] = field(default_factory=dict)
    row_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Combination:
    """One set of values; equal inputs give an equal combination at the same ordinal."""

    ordinal: int
    values: Mapping[str, str]
    passthrough: Mapping[str, str]
    row_id: str | None


def count(
    mode: ExpansionMode,
    values: Values,
    *,
    row_count: int | None = None,
    sample_size: int | None = None,
) -> int:
    """How many combinations `expand` gives; `row_count` is None where there is no upload.

    InvalidInput names a parameter without values, and lists of unequal length where they are
    taken line by line. What the rules of `RuledValues` leave out is not counted; they hold for
    products and samples of them.
    """
    if empty := [name for name, given in values.items() if not given]:
        raise InvalidInput(
            f"There are no values for {_and(empty)}. Type some, or take the placeholder out of"
            " the prompt.",
            field=empty[0],
        )
    if mode is ExpansionMode.ZIP:
        return _zip_length(values, row_count)
    rows = 1 if row_count is None else row_count
    if math.prod(map(len, values.values())) * rows > _MAX_PRODUCT:
        raise InvalidInput("The values have more combinations than can be counted; use fewer.")
    product = _product_size(values) * rows
    if mode is ExpansionMode.SAMPLED:
        if sample_size is None:
            raise InvalidInput("Say how many combinations to pick.", field="sample_size")
        return min(sample_size, product)
    return product


def expand(
    mode: ExpansionMode,
    values: Values,
    *,
    rows: Iterable[SourceRow] | None = None,
    row_count: int | None = None,
    sample_size: int | None = None,
    sample_seed: int = 0,
    start: int = 0,
    first_row: int = 0,
) -> Iterator[Combination]:
    """Give the combinations from ordinal `start` on.

    `values` are lists by parameter; the last parameter changes fastest. With `rows` (and their
    `row_count`) each row brings its own values: `cartesian` combines every row with every
    combination of the lists, `zip` puts the lists beside the rows. Rows are read once, in
    order; only a sample holds them in memory. `first_row` is the number of the first of `rows`
    when those before `row_of(…, start)` are left out; it counts from 0.
    """
    total = count(mode, values, row_count=row_count, sample_size=sample_size)
    axes = _Axes(values, is_zip=mode is ExpansionMode.ZIP)
    if mode is ExpansionMode.SAMPLED:
        held = None if rows is None else tuple(rows)
        order = _Shuffle(axes.size * (1 if held is None else len(held)), seed=sample_seed)
        for ordinal in range(start, total):
            row, index = divmod(order.at(ordinal), axes.size)
            yield _combine(ordinal, axes.at(index), None if held is None else held[row])
    elif rows is None:
        for ordinal in range(start, total):
            yield _combine(ordinal, axes.at(ordinal), None)
    else:
        per_row = 1 if axes.is_zip else axes.size
        if not total:
            return
        start_row, start_index = divmod(start, per_row)
        for number, source in enumerate(islice(rows, start_row - first_row, None), start_row):
            for index in range(start_index if number == start_row else 0, per_row):
                ordinal = number * per_row + index
                yield _combine(ordinal, axes.at(number if axes.is_zip else index), source)


def row_of(mode: ExpansionMode, values: Values, ordinal: int) -> int:
    """The row, counted from 0, whose values the combination has; a sample begins with them all."""
    if mode is ExpansionMode.SAMPLED:
        return 0
    if mode is ExpansionMode.ZIP:
        return ordinal
    return ordinal // _product_size(values)


def assign_columns(
    cells: Mapping[str, str], columns: Mapping[str, str], *, row_id_column: str | None = None
) -> SourceRow:
    """Sort a row's cells into values (`columns`: parameter to header), row id and the rest."""
    taken = {*columns.values(), row_id_column}
    row_id = cells.get(row_id_column) if row_id_column else None
    return SourceRow(
        values={name: cells[column] for name, column in columns.items()},
        passthrough={header: cell for header, cell in cells.items() if header not in taken},
        row_id=row_id or None,
    )


def _combine(ordinal: int, values: dict[str, str], row: SourceRow | None) -> Combination:
    if row is None:
        return Combination(ordinal=ordinal, values=values, passthrough={}, row_id=None)
    return Combination(
        ordinal=ordinal,
        values={**row.values, **values},
        passthrough=row.passthrough,
        row_id=row.row_id,
    )


class _Axes:
    """Lists of values, read at any index of their product or line by line."""

    def __init__(self, values: Values, *, is_zip: bool) -> None:
        self.is_zip = is_zip
        self._allowed = None if is_zip else _allowed(values)
        self.size = self._allowed.size if self._allowed else math.prod(map(len, values.values()))
        self._lists = [(name, tuple(given)) for name, given in values.items()]
        # Of a product the last list changes fastest.
        self._strides = {name: 1 for name, _ in self._lists}
        stride = 1
        for name, given in reversed(self._lists):
            self._strides[name] = stride
            stride *= len(given)

    def at(self, index: int) -> dict[str, str]:
        if self.is_zip:
            return {name: given[index if len(given) > 1 else 0] for name, given in self._lists}
        if self._allowed:
            return self._allowed.at(index)
        strides = self._strides
        return {name: given[index // strides[name] % len(given)] for name, given in self._lists}


def _product_size(values: Values) -> int:
    """How many combinations there are, without those that are left out."""
    allowed = _allowed(values)
    return allowed.size if allowed else math.prod(map(len, values.values()))


def _allowed(values: Values) -> AllowedCombinations | None:
    """The combinations that rules leave; None without any rule."""
    if isinstance(values, RuledValues) and values.forbidden:
        return AllowedCombinations(values)
    return None


def _zip_length(values: Values, row_count: int | None) -> int:
    """The common length; a list of one value goes with every line."""
    lengths = {name: len(given) for name, given in values.items() if len(given) > 1}
    expected = row_count if row_count is not None else max(lengths.values(), default=1)
    if unequal := [name for name, length in lengths.items() if length != expected]:
        wanted = f"{expected:,}" + (" like the rows of the table" if row_count is not None else "")
        counts = ", ".join(f"{name} has {length:,}" for name, length in lengths.items())
        raise InvalidInput(
            f"Line by line, every parameter needs as many values as the others: {counts}; give"
            f" {_and(unequal)} {wanted}, or one value for all lines.",
            field=unequal[0],
        )
    return expected


class _Shuffle:
    """A seeded order of range(size) that knows its n-th member without the others.

    A Feistel network over the next power of four, walked until it lands inside the range
    (Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002). The mixing is
    written out, so a stored seed means the same sample with any version of Python.
    """

    def __init__(self, size: int, *, seed: int) -> None:
        self._size = size
        self._half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
        self._half_mask = (1 << self._half_bits) - 1
        self._keys: list[int] = []
        key = seed & _MASK
        for _ in range(_ROUNDS):
            key = _mix(key + 0x9E3779B97F4A7C15)
            self._keys.append(key)

    def at(self, index: int) -> int:
        while True:
            left, right = index >> self._half_bits, index & self._half_mask
            for key in self._keys:
                left, right = right, left ^ (_mix(right ^ key) & self._half_mask)
            index = left << self._half_bits | right
            if index < self._size:
                return index


def _mix(word: int) -> int:
    """Spread every bit of a 64-bit word over the whole (the finalizer of SplitMix64)."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _MASK
    return word ^ word >> 31


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
