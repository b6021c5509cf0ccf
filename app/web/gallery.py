"""One block of a batch's gallery, as its templates take it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flask import url_for
from sqlalchemy.orm import Session
from werkzeug.datastructures import MultiDict

from app.access import Actor
from app.models import Batch, BatchState
from app.services import reviews
from app.services.export_names import DEFAULT_PATTERN
from app.services.variant_views import FINISHED, count_variants, find_variants
from app.web.tiles import (
    BLOCK_SIZE,
    MAX_FILTER_VALUES,
    SHOWS,
    FilterParameter,
    Filters,
    block_etag,
    is_settled,
    kinds_of,
    read_filters,
    spec_of,
    tile_of,
)

LIVE_STATES = (BatchState.EXPANDING, BatchState.RUNNING, BatchState.PAUSED)


def gallery_context(
    session: Session, actor: Actor, batch: Batch, args: MultiDict[str, str]
) -> dict[str, Any]:
    """Tiles after the ordinal in `args`, the address of the next block, and the filters."""
    spec = spec_of(batch)
    filters = read_filters(args, spec)
    after = args.get("after", default=-1, type=int)
    views = find_variants(
        session, actor, batch.id, filters.wanted, limit=BLOCK_SIZE, after_ordinal=after
    )
    tiles = [tile_of(view, kinds_of(spec)) for view in views]
    next_after = _next_after(batch, filters, after, [view.variant.ordinal for view in views])
    is_pending = batch.state in LIVE_STATES and (
        filters.is_narrow or not tiles or not all(map(is_settled, tiles))
    )
    return {
        "tiles": tiles,
        "after": after + 1,
        "is_first": after < 0,
        "is_pending": is_pending,
        "is_portrait": spec.settings.height > spec.settings.width,
        "is_filtered": filters.is_narrow,
        "filters": filters,
        "shows": SHOWS,
        "filter_parameters": [
            FilterParameter(name=item.name, values=item.values)
            for item in spec.parameters
            if len(item.values) != 1 and len(item.values) <= MAX_FILTER_VALUES
        ],
        "name_pattern": DEFAULT_PATTERN,
        # Variants that can be reviewed and taken home; counted for the whole page alone.
        "review_counts": reviews.count_reviews(session, actor, batch.id) if after < 0 else None,
        "shown_count": _shown_count(session, actor, batch, filters) if after < 0 else 0,
        "block_etag": block_etag(tiles, is_pending, next_after),
        "block_url": _block_url(batch, filters, after),
        "next_url": None if next_after is None else _block_url(batch, filters, next_after),
    }


def _shown_count(session: Session, actor: Actor, batch: Batch, filters: Filters) -> int:
    wanted = replace(filters.wanted, states=FINISHED)
    return count_variants(session, actor, batch.id, wanted)


def _next_after(batch: Batch, filters: Filters, after: int, ordinals: list[int]) -> int | None:
    """Where the next block starts, or None at the end."""
    if filters.is_narrow:
        return ordinals[-1] if len(ordinals) == BLOCK_SIZE else None
    # Variants that are still to be written have their ordinals already.
    end = after + BLOCK_SIZE
    return end if end < batch.variant_count - 1 else None


def _block_url(batch: Batch, filters: Filters, after: int) -> str:
    return url_for("batches.tiles", batch_id=batch.id, after=after, **filters.query())  # type: ignore[arg-type]
