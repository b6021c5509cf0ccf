"""The rows of an upload as batches read them, what was mended in them, and what came before."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.errors import InvalidInput
from app.models import Batch, Upload
from app.services.specs import BatchSpec
from app.services.table_dialect import Dialect
from app.services.table_files import (
    REPAIR_COLUMNS,
    UploadRow,
    export_csv,
    read_mended,
    read_repairs,
)
from app.services.table_questions import Question
from app.services.tables import Table, open_table
from app.storage import Storage


def read_rows(storage: Storage, upload: Upload, *, offset: int = 0) -> Iterator[UploadRow]:
    """The mended rows of an upload in file order; InvalidInput while a question is open.

    `offset` is the `end` of an earlier row, to go on behind it.
    """
    if upload.is_open:
        raise InvalidInput(
            f"{upload.filename} still has a question to be answered before it can be used.",
            field="upload_id",
        )
    if upload.table_key is not None:
        with storage.open(upload.table_key, offset=offset) as file:
            yield from read_mended(file, upload.header, offset=offset)
        return
    # Kept before rows were stored mended.
    with _seekable(storage.open(upload.storage_key)) as file:
        reading = Dialect.from_dict(upload.dialect)
        table = open_table(file, dialect=reading, max_rows=upload.row_count)
        yield from _named(table)


def list_questions(upload: Upload) -> list[Question]:
    """What is or was asked about the table; `upload.answers` holds the answers so far."""
    return [Question.from_dict(item) for item in upload.questions]


def export_mended(storage: Storage, upload: Upload) -> Iterator[bytes]:
    """The mended table as a CSV in blocks, safe to open in a spreadsheet."""
    rows = read_rows(storage, upload)
    return export_csv(upload.header, (list(row.cells.values()) for row in rows))


def export_repairs(storage: Storage, upload: Upload) -> Iterator[bytes]:
    """Every repair, cell by cell, as a CSV in blocks."""
    return export_csv(
        REPAIR_COLUMNS, (list(item.values()) for item in list_repairs(storage, upload))
    )


def list_repairs(storage: Storage, upload: Upload) -> Iterator[dict[str, str]]:
    """The repairs in file order, by REPAIR_COLUMNS."""
    if upload.repairs_key is not None:
        with storage.open(upload.repairs_key) as file:
            yield from read_repairs(file)


def find_remembered_columns(session: Session, campaign_id: UUID) -> dict[str, str]:
    """Which column filled which placeholder when a table was last used for the campaign."""
    spec = session.scalar(
        select(Batch.spec)
        .where(Batch.campaign_id == campaign_id, Batch.upload_id.is_not(None))
        .order_by(Batch.created_at.desc())
        .limit(1)
    )
    return dict(BatchSpec.model_validate(spec).columns) if spec else {}


def find_earlier(session: Session, upload: Upload) -> Upload | None:
    """The table that the campaign's newest batch was made of, else the one uploaded before."""
    others = select(Upload).where(
        Upload.campaign_id == upload.campaign_id, Upload.is_open.is_(False)
    )
    if upload.id is not None:
        others = others.where(Upload.id != upload.id)
    used = others.join(Batch, Batch.upload_id == Upload.id).order_by(Batch.created_at.desc())
    with session.no_autoflush:
        return session.scalar(used.limit(1)) or session.scalar(
            others.order_by(Upload.created_at.desc()).limit(1)
        )


@contextmanager
def _seekable(file: BinaryIO) -> Iterator[BinaryIO]:
    with ExitStack() as stack:
        stack.enter_context(file)
        if not file.seekable():
            # What comes from a bucket cannot be wound back to its start.
            copy = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, copy)
            file = copy
        yield file


def _named(table: Table) -> Iterator[UploadRow]:
    for row in table.rows():
        cells = dict(zip(table.header, row.cells, strict=True))
        yield UploadRow(number=row.number, line=row.line, cells=cells)
