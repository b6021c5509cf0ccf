"""Uploads: a table kept as it was received, and its mended rows, checked before anything runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import Conflict, InvalidInput
from app.models import Batch, Campaign, Upload, Workspace
from app.services.blocked_terms import load_index
from app.services.campaigns import CampaignDetails, get_campaign
from app.services.scoping import get_in_workspace
from app.services.table_checks import check_values
from app.services.table_columns import (
    check_columns,
    find_row_id_column,
    map_columns,
    suggest_column,
    suggest_columns,
)
from app.services.table_pass import check_table
from app.services.upload_receiving import MAX_BYTES, Incoming, Reading, copy_limited, is_zip
from app.services.upload_rows import (
    export_mended,
    export_repairs,
    find_remembered_columns,
    list_questions,
    list_repairs,
    read_rows,
)
from app.storage import Storage

# The one face of uploads and their tables for pages, batches and the command line.
__all__ = [
    "MAX_BYTES",
    "Incoming",
    "Reading",
    "answer_questions",
    "check_columns",
    "check_table",
    "check_values",
    "create_upload",
    "export_mended",
    "export_repairs",
    "find_remembered_columns",
    "find_row_id_column",
    "get_upload",
    "list_questions",
    "list_repairs",
    "list_uploads",
    "map_columns",
    "read_rows",
    "receive",
    "suggest_column",
    "suggest_columns",
]

MAX_FILENAME_LENGTH: Final = 255
_MEDIA_TYPES: Final = {
    "csv": "text/csv",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def create_upload(
    session: Session,
    actor: Actor,
    storage: Storage,
    *,
    campaign_id: UUID,
    filename: str,
    stream: IO[bytes],
) -> Upload:
    """Check a table against the campaign's placeholders and keep it.

    TableError holds every finding; then nothing was stored. Repairs, warnings and questions are
    kept with the upload; while `is_open`, a required question waits for `answer_questions`.
    """
    steps = receive(
        session, actor, storage, campaign_id=campaign_id, filename=filename, stream=stream
    )
    return _finish(steps)


def receive(
    session: Session,
    actor: Actor,
    storage: Storage,
    *,
    campaign_id: UUID,
    filename: str,
    stream: IO[bytes],
) -> Iterator[Reading | Upload]:
    """Do what `create_upload` does, telling how far it is, and giving the upload at the end."""
    require(actor, Action.EDIT)
    details = get_campaign(session, actor, campaign_id)
    with _incoming(session, details) as incoming:
        sha256, size_bytes = copy_limited(stream, incoming.path)
        yield from incoming.check()
        kind = "xlsx" if is_zip(incoming.path) else "csv"
        upload = Upload(
            workspace_id=actor.workspace_id,
            campaign_id=campaign_id,
            filename=_clean_filename(filename),
            # The name is the content, so the same file is stored once.
            storage_key=f"uploads/{actor.workspace_id}/{sha256}.{kind}",
            sha256=sha256,
            size_bytes=size_bytes,
            created_by=actor.user_id,
        )
        storage.put_file(upload.storage_key, incoming.path, media_type=_MEDIA_TYPES[kind])
        incoming.keep(session, storage, upload)
        yield upload


def answer_questions(
    session: Session,
    actor: Actor,
    storage: Storage,
    upload_id: UUID,
    *,
    answers: Mapping[str, str],
) -> Upload:
    """Read the original again with what a person answered; earlier answers stay unless changed.

    TableError when the answers do not fit the rows; Conflict once a batch was made of the upload.
    """
    require(actor, Action.EDIT)
    upload = get_in_workspace(session, actor, Upload, upload_id)
    if session.scalar(select(Batch.id).where(Batch.upload_id == upload.id).limit(1)):
        raise Conflict("A batch was made of these rows; upload the file again to change answers.")
    given = {**upload.answers, **_known_answers(upload, answers)}
    details = get_campaign(session, actor, upload.campaign_id)
    with _incoming(session, details, answers=given) as incoming:
        with storage.open(upload.storage_key) as file, incoming.path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        for _ in incoming.check():
            pass
        incoming.keep(session, storage, upload)
    return upload


def get_upload(session: Session, actor: Actor, upload_id: UUID) -> Upload:
    require(actor, Action.VIEW)
    return get_in_workspace(session, actor, Upload, upload_id)


def list_uploads(
    session: Session, actor: Actor, campaign_id: UUID, *, limit: int, before: UUID | None = None
) -> list[Upload]:
    """The newest uploads of a campaign first; `before` is the last id of the page before."""
    require(actor, Action.VIEW)
    get_in_workspace(session, actor, Campaign, campaign_id)
    query = select(Upload).where(Upload.campaign_id == campaign_id)
    if before is not None:
        query = query.where(Upload.id < before)
    return list(session.scalars(query.order_by(Upload.id.desc()).limit(limit)))


def _finish(steps: Iterator[Reading | Upload]) -> Upload:
    for step in steps:
        if isinstance(step, Upload):
            return step
    raise RuntimeError("the table was read without a result")


@contextmanager
def _incoming(
    session: Session, details: CampaignDetails, *, answers: Mapping[str, str] | None = None
) -> Iterator[Incoming]:
    workspace = session.get_one(Workspace, details.campaign.workspace_id)
    with tempfile.TemporaryDirectory(prefix="adloom-upload-") as folder:
        yield Incoming(
            Path(folder),
            details,
            remembered=find_remembered_columns(session, details.campaign.id),
            answers=answers or {},
            max_rows=workspace.max_variants_per_batch,
            terms=load_index(session, workspace.id),
        )


def _known_answers(upload: Upload, answers: Mapping[str, str]) -> dict[str, str]:
    """The answers that belong to a question of the upload; InvalidInput for a wrong choice."""
    choices = {
        question.question_id: {choice.value for choice in question.choices}
        for question in list_questions(upload)
    }
    for question_id, answer in answers.items():
        if answer not in choices.get(question_id, ()):
            raise InvalidInput("Choose one of the answers that are offered.", field=question_id)
    return dict(answers)


def _clean_filename(filename: str) -> str:
    """The name for the screen alone, without folders or control characters."""
    name = filename.replace("\\", "/").rpartition("/")[2]
    return "".join(filter(str.isprintable, name)).strip()[-MAX_FILENAME_LENGTH:] or "table.csv"
