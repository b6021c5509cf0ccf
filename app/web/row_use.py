"""The rows of a quoted table that need no render of their own, as a part of the quote's page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from flask import Blueprint, Response
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Actor
from app.models import Upload
from app.services import batches, uploads
from app.services.row_use import SpareRow, list_spare_rows
from app.services.table_files import export_csv
from app.services.table_findings import TableFinding
from app.web.scope import page, signed_in

blueprint = Blueprint("row_use", __name__, url_prefix="/batches")

FIRST_ROWS = 5
MAX_LISTED = 200


@dataclass(frozen=True, kw_only=True)
class RowKind:
    """Rows of one kind: how many, the first of them, and what is done with them."""

    title: str
    text: str
    count: int
    first: str


@blueprint.get("/<uuid:batch_id>/rows")
@signed_in
def show(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    batch = batches.get_batch(session, actor, batch_id)
    rows = list_spare_rows(session, actor, batch_id)
    upload = uploads.get_upload(session, actor, batch.upload_id) if batch.upload_id else None
    return page(
        "batches/row_use.html",
        batch=batch,
        kinds=_kinds(rows),
        rows=rows[:MAX_LISTED],
        row_count=len(rows),
        left_out=_left_out(upload),
    )


@blueprint.get("/<uuid:batch_id>/rows.csv")
@signed_in
def download(session: Session, actor: Actor, batch_id: UUID) -> ResponseReturnValue:
    rows = list_spare_rows(session, actor, batch_id)
    lines = [[str(row.number), row.why] for row in rows]
    response = Response(b"".join(export_csv(["row", "why"], lines)), mimetype="text/csv")
    response.headers.set("Content-Disposition", "attachment", filename="rows-without-render.csv")
    return response


def _kinds(rows: Sequence[SpareRow]) -> list[RowKind]:
    before = [row for row in rows if row.like is None]
    repeated = [row for row in rows if row.like is not None]
    kinds = [
        RowKind(
            title="Rendered before",
            text="Taken from there: neither rendered nor charged again.",
            count=len(before),
            first=_first([f"{row.number:,}" for row in before]),
        ),
        RowKind(
            title="Same as an earlier row",
            text="They come out as the same picture. Was that meant?",
            count=len(repeated),
            first=_first([f"{row.number:,} (as {row.like:,})" for row in repeated]),
        ),
    ]
    return [kind for kind in kinds if kind.count]


def _first(names: Sequence[str]) -> str:
    more = len(names) - FIRST_ROWS
    shown = ", ".join(names[:FIRST_ROWS])
    return f"{shown} and {more:,} more" if more > 0 else shown


def _left_out(upload: Upload | None) -> list[str]:
    """What of the file was skipped when it was read."""
    found = map(TableFinding.from_dict, upload.findings) if upload else ()
    return [str(item) for item in found if item.code == "repeated_header"]
