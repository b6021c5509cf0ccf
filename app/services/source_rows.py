"""The rows that a batch reads of its upload, each of them once: chunks go on where one ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from app.models import Upload
from app.services import uploads
from app.services.expansion import SourceRow, assign_columns
from app.services.specs import BatchSpec
from app.storage import Storage


@dataclass(frozen=True, kw_only=True, slots=True)
class RowPlace:
    """Where a row, counted from 0, begins in the table's file: a byte, 0 where it is not known."""

    row: int = 0
    offset: int = 0


class RowReader:
    """Reads rows in file order from any one on, without those before a place that is known."""

    def __init__(
        self, storage: Storage, upload: Upload, spec: BatchSpec, *, known: RowPlace
    ) -> None:
        self._storage = storage
        self._upload = upload
        self._spec = spec
        self._known = known
        self._last = self._next = RowPlace()

    def read(self, first: int = 0) -> Iterator[SourceRow]:
        """The rows from `first` on."""
        known = self._known if self._known.row == first and self._known.offset else RowPlace()
        self._last = self._next = known
        rows = uploads.read_rows(self._storage, self._upload, offset=known.offset)
        for number, row in enumerate(islice(rows, first - known.row, None), first):
            begin = self._next.offset if self._next.row == number else 0
            self._last = RowPlace(row=number, offset=begin)
            self._next = RowPlace(row=number + 1, offset=row.end)
            yield assign_columns(
                row.cells, self._spec.columns, row_id_column=self._spec.row_id_column
            )

    def offset_of(self, row: int) -> int:
        """Where a row begins, if it is the last that was read or the one behind it; else 0."""
        found = (place.offset for place in (self._next, self._last) if place.row == row)
        return next(found, 0)
