"""Spreadsheet pages: choose a file, answer what it leaves open, match its columns, take it home."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import IO
from uuid import UUID

from flask import Blueprint, Response, redirect, request, send_file, stream_with_context, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import AppError, InvalidInput
from app.extensions import extensions
from app.models import Upload
from app.services import campaigns, table_samples, uploads
from app.services.table_findings import TableError
from app.web.scope import page, signed_in, start_over
from app.web.upload_prices import chosen_columns, price_context
from app.web.upload_view import asked_questions, finding_lines, reading_words, upload_context

LOG = logging.getLogger(__name__)
PROGRESS_TYPE = "application/x-ndjson"
XLSX_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
REFUSED = "This file cannot be used yet. Nothing was saved."

blueprint = Blueprint("uploads", __name__)


@blueprint.get("/campaigns/<uuid:campaign_id>/upload")
@signed_in
def new(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    require(actor, Action.EDIT)
    return _upload_page(session, actor, campaign_id)


@blueprint.post("/campaigns/<uuid:campaign_id>/upload")
@signed_in
def create(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    """Keep the file as it is, check every row, and go on to the columns.

    A script that accepts PROGRESS_TYPE is told line by line how far the check is.
    """
    require(actor, Action.EDIT)
    file = request.files.get("file")
    try:
        if file is None or not file.filename:
            raise InvalidInput("Choose a file first.", field="file")
        if request.accept_mimetypes.best == PROGRESS_TYPE:
            campaigns.get_campaign(session, actor, campaign_id)
            # The request's own file is closed before the answer has been streamed.
            copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the answer has ended
            shutil.copyfileobj(file.stream, copy)
            copy.seek(0)
            lines = stream_with_context(_progress(actor, campaign_id, file.filename, copy))
            return Response(lines, mimetype=PROGRESS_TYPE)
        upload = uploads.create_upload(
            session,
            actor,
            extensions().storage,
            campaign_id=campaign_id,
            filename=file.filename,
            stream=file.stream,
        )
    except InvalidInput as error:
        start_over(session, actor)
        return _upload_page(session, actor, campaign_id, error=error)
    return redirect(url_for("uploads.show", upload_id=upload.id))


@blueprint.get("/uploads/<uuid:upload_id>")
@signed_in
def show(session: Session, actor: Actor, upload_id: UUID) -> ResponseReturnValue:
    return mapping_page(session, actor, upload_id)


@blueprint.post("/uploads/<uuid:upload_id>/answers")
@signed_in
def answer(session: Session, actor: Actor, upload_id: UUID) -> ResponseReturnValue:
    """Read the file again with what a person said about it."""
    answers = {
        name.removeprefix("answer:"): value
        for name, value in request.form.items()
        if name.startswith("answer:")
    }
    try:
        uploads.answer_questions(session, actor, extensions().storage, upload_id, answers=answers)
    except InvalidInput as error:
        start_over(session, actor)
        return mapping_page(session, actor, upload_id, error=error)
    return redirect(url_for("uploads.show", upload_id=upload_id))


@blueprint.get("/campaigns/<uuid:campaign_id>/sample.<any(csv, xlsx):kind>")
@signed_in
def sample(session: Session, actor: Actor, campaign_id: UUID, kind: str) -> ResponseReturnValue:
    details = campaigns.get_campaign(session, actor, campaign_id)
    is_csv = kind == "csv"
    content = table_samples.sample_csv(details) if is_csv else table_samples.sample_xlsx(details)
    return _attachment([content], f"adloom-sample.{kind}", "text/csv" if is_csv else XLSX_TYPE)


@blueprint.get("/uploads/<uuid:upload_id>/original")
@signed_in
def original(session: Session, actor: Actor, upload_id: UUID) -> ResponseReturnValue:
    """The file byte for byte as it came."""
    upload = uploads.get_upload(session, actor, upload_id)
    return send_file(
        extensions().storage.open(upload.storage_key),
        mimetype="application/octet-stream",
        as_attachment=True,
        download_name=upload.filename,
        etag=False,
    )


@blueprint.get("/uploads/<uuid:upload_id>/<any(mended, repairs):what>.csv")
@signed_in
def download(session: Session, actor: Actor, upload_id: UUID, what: str) -> ResponseReturnValue:
    """The mended rows, or the list of everything that was mended."""
    upload = uploads.get_upload(session, actor, upload_id)
    export = uploads.export_mended if what == "mended" else uploads.export_repairs
    blocks = export(extensions().storage, upload)
    return _attachment(blocks, f"{PurePath(upload.filename).stem}-{what}.csv", "text/csv")


def mapping_page(
    session: Session,
    actor: Actor,
    upload_id: UUID,
    *,
    columns: Mapping[str, str] | None = None,
    error: InvalidInput | None = None,
) -> Response:
    """The columns of an upload beside the campaign's placeholders; `columns` are the choices.

    While a question about the file is open, that question alone.
    """
    upload = uploads.get_upload(session, actor, upload_id)
    details = campaigns.get_campaign(session, actor, upload.campaign_id)
    context = {
        "upload": upload,
        "campaign": details.campaign,
        "questions": asked_questions(upload),
        "dialect_words": reading_words(upload.dialect),
        "wrong": error.field if error else None,
        "errors": _findings(error) if error else [],
    }
    status = error.status if error else 200
    if upload.is_open:
        found = finding_lines(upload)
        return page("uploads/questions.html", status=status, findings=found, **context)
    shown = upload_context(session, extensions().storage, upload, details, columns=columns)
    return page("uploads/show.html", status=status, **shown, **context)


@blueprint.get("/uploads/<uuid:upload_id>/prices")
@signed_in
def prices(session: Session, actor: Actor, upload_id: UUID) -> ResponseReturnValue:
    """What the rows would cost with each quality; `column:…` are the columns chosen so far."""
    require(actor, Action.EDIT)
    upload = uploads.get_upload(session, actor, upload_id)
    details = campaigns.get_campaign(session, actor, upload.campaign_id)
    columns = chosen_columns(request.args, details)
    return page("uploads/prices.html", **price_context(session, actor, upload, details, columns))


def _progress(actor: Actor, campaign_id: UUID, filename: str, stream: IO[bytes]) -> Iterator[str]:
    """One JSON object per line: rows read so far, then where to go on or what is wrong."""
    upload: Upload | None = None
    try:
        with stream, extensions().database.workspace_scope(actor) as session:
            for step in uploads.receive(
                session,
                actor,
                extensions().storage,
                campaign_id=campaign_id,
                filename=filename,
                stream=stream,
            ):
                if isinstance(step, Upload):
                    upload = step
                else:
                    yield _line(rows=step.rows, expected=step.expected)
        # Only now is the upload there for the next request.
        if upload is not None:
            yield _line(url=url_for("uploads.show", upload_id=upload.id))
    except InvalidInput as error:
        yield _line(title=REFUSED, errors=_findings(error))
    except AppError as error:
        yield _line(title="That did not work.", errors=[error.message])
    except Exception:
        # The answer has begun, so no error page can take its place.
        LOG.exception("an upload broke")
        message = "Something broke on our side. Nothing was saved; please try again."
        yield _line(title=message, errors=[])


def _line(**values: object) -> str:
    return json.dumps(values) + "\n"


def _upload_page(
    session: Session, actor: Actor, campaign_id: UUID, *, error: InvalidInput | None = None
) -> Response:
    details = campaigns.get_campaign(session, actor, campaign_id)
    return page(
        "uploads/new.html",
        status=error.status if error else 200,
        campaign=details.campaign,
        parameters=details.parameters,
        findings=_findings(error) if error else [],
        findings_title=REFUSED,
        max_megabytes=uploads.MAX_BYTES // 2**20,
    )


def _findings(error: InvalidInput) -> list[str]:
    if isinstance(error, TableError):
        return [str(finding) for finding in error.findings]
    return [error.message]


def _attachment(content: Iterable[bytes], filename: str, mimetype: str) -> Response:
    response = Response(content, mimetype=mimetype)
    response.headers.set("Content-Disposition", "attachment", filename=filename)
    return response
