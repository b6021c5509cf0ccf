"""Which variants of a batch an action means: those that were ticked, or all that a filter shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from werkzeug.datastructures import MultiDict

from app.errors import InvalidInput
from app.models import Batch
from app.services.variant_views import FINISHED, VariantFilter
from app.web.tiles import Filters, read_filters, spec_of


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Ticked variants by id, or none of them and a filter."""

    ids: Sequence[UUID]
    filters: Filters

    @property
    def wanted(self) -> VariantFilter:
        """The finished variants that are meant."""
        if self.ids:
            return VariantFilter(ids=self.ids, states=FINISHED)
        return replace(self.filters.wanted, states=FINISHED)

    def fields(self) -> list[tuple[str, str]]:
        """The same selection as hidden fields of a form."""
        if self.ids:
            return [("variant", str(id_)) for id_ in self.ids]
        return list(self.filters.query().items())


def read_selection(args: MultiDict[str, str], batch: Batch) -> Selection:
    """The selection of an address or a form; InvalidInput for an id that is none.

    `scope=all` means everything that the filter shows, whatever is ticked.
    """
    try:
        ids = (
            []
            if args.get("scope") == "all"
            else [*map(UUID, dict.fromkeys(args.getlist("variant")))]
        )
    except ValueError:
        raise InvalidInput("This is not the id of a variant.", field="variant") from None
    return Selection(ids=ids, filters=read_filters(args, spec_of(batch)))
