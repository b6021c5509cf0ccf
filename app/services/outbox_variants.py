"""Events about variants: noted by whoever ends their jobs, told in bundles.

A hundred thousand variants must not mean as many messages, nor as many rows where nobody has asked
to be told: the note is written only if an endpoint of the workspace wants the type.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from sqlalchemy import CTE, Insert, Row, delete, insert, select
from sqlalchemy.orm import Session

from app.models import (
    Batch,
    JobPurpose,
    JobState,
    RenderJob,
    Variant,
    WebhookEventType,
    WebhookVariantEnd,
)
from app.services.outbox import emit, is_wanted
from app.services.outbox_batches import batch_link

# States that a variant is told of; a cancelled one has its batch's event.
TOLD_STATES: Final = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.QUARANTINED})
TAKE_SIZE: Final = 1_000
MAX_VARIANTS: Final = 50
MAX_BUNDLE_BYTES: Final = 12_000
# The cells of a row that are handed back; a longer row is left out, and said to be.
MAX_PASSTHROUGH_BYTES: Final = 2_000


def note_ends(moved: CTE) -> Insert:
    """Part of the statement that moves jobs to an end: note them for the next bundle."""
    ended = select(moved.c.workspace_id, moved.c.batch_id, moved.c.id).where(
        moved.c.purpose == JobPurpose.FINAL,
        is_wanted(WebhookEventType.VARIANT_COMPLETED, moved.c.workspace_id),
    )
    return insert(WebhookVariantEnd).from_select(["workspace_id", "batch_id", "job_id"], ended)


def note_reused(session: Session, job_ids: Collection[UUID]) -> None:
    """Note jobs that were made as finished already, with an artifact that existed."""
    if not job_ids:
        return
    reused = select(RenderJob.workspace_id, RenderJob.batch_id, RenderJob.id).where(
        RenderJob.id.in_(job_ids),
        RenderJob.purpose == JobPurpose.FINAL,
        is_wanted(WebhookEventType.VARIANT_COMPLETED, RenderJob.workspace_id),
    )
    columns = ["workspace_id", "batch_id", "job_id"]
    session.execute(insert(WebhookVariantEnd).from_select(columns, reused))


def bundle(session: Session, *, limit: int = TAKE_SIZE) -> int:
    """Write the events of variants that have ended since; returns how many variants."""
    waiting = (
        select(WebhookVariantEnd.id)
        .order_by(WebhookVariantEnd.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    taken = (
        delete(WebhookVariantEnd)
        .where(WebhookVariantEnd.id.in_(waiting))
        .returning(WebhookVariantEnd.id, WebhookVariantEnd.job_id)
        .cte("taken")
    )
    rows = session.execute(
        select(
            Batch.workspace_id,
            Batch.campaign_id,
            Batch.spec,
            RenderJob.batch_id,
            RenderJob.state,
            RenderJob.error_code,
            RenderJob.artifact_id,
            Variant.id.label("variant_id"),
            Variant.ordinal,
            Variant.row_id,
            Variant.passthrough,
        )
        .select_from(taken)
        .join(RenderJob, RenderJob.id == taken.c.job_id)
        .join(Variant, Variant.id == RenderJob.variant_id)
        .join(Batch, Batch.id == RenderJob.batch_id)
        .order_by(RenderJob.batch_id, taken.c.id)
    ).all()
    for batch_id, ended in groupby(rows, key=lambda row: row.batch_id):
        _emit_bundles(session, batch_id, list(ended))
    return len(rows)


def _emit_bundles(session: Session, batch_id: UUID, ended: Sequence[Row[Any]]) -> None:
    first = ended[0]
    for variants in _bundles(ended):
        data = {
            "batch_id": str(batch_id),
            "campaign_id": str(first.campaign_id),
            "variants": variants,
            "passthrough": first.spec.get("passthrough", {}),
            "links": {"dashboard": batch_link(session, batch_id)},
        }
        emit(session, first.workspace_id, WebhookEventType.VARIANT_COMPLETED, data)


def _bundles(ended: Sequence[Row[Any]]) -> Iterator[list[dict[str, Any]]]:
    bundled: list[dict[str, Any]] = []
    size_bytes = 0
    for row in ended:
        item = _item(row)
        item_bytes = _size_bytes(item)
        is_full = len(bundled) >= MAX_VARIANTS or size_bytes + item_bytes > MAX_BUNDLE_BYTES
        if bundled and is_full:
            yield bundled
            bundled, size_bytes = [], 0
        bundled.append(item)
        size_bytes += item_bytes
    yield bundled


def _item(row: Row[Any]) -> dict[str, Any]:
    is_short = _size_bytes(row.passthrough) <= MAX_PASSTHROUGH_BYTES
    return {
        "variant_id": str(row.variant_id),
        "ordinal": row.ordinal,
        "row_id": row.row_id,
        "state": row.state.value,
        "error_code": row.error_code,
        "artifact_id": str(row.artifact_id) if row.artifact_id else None,
        "passthrough": row.passthrough if is_short else {},
        "is_passthrough_omitted": not is_short,
    }


def _size_bytes(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
