"""Uploads: tables of rows, checked before anything is queued."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from flask import request

from app.access import Action
from app.api.cursors import read_id_cursor
from app.api.routes import Call, Empty, Route, RouteKind, Routes
from app.api.schemas.base import PageQuery, paged
from app.api.schemas.uploads import Upload, UploadAnswers, UploadPage
from app.extensions import extensions
from app.problems import ValidationFailed
from app.services import uploads

routes = Routes()
TAG: Final = "Uploads"
FILE: Final = "file"


@routes.add(
    Route(
        method="POST",
        path="/campaigns/<uuid:campaign_id>/uploads",
        kind=RouteKind.OBJECT,
        action=Action.EDIT,
        tag=TAG,
        summary="Upload a table (CSV or XLSX) for a campaign",
        answer=Upload,
        status=201,
        is_upload=True,
    )
)
def create_upload(call: Call[Empty, Empty], campaign_id: UUID) -> Upload:
    file = request.files.get(FILE)
    if file is None:
        missing = {"field": FILE, "message": "Send the table as the part “file” of a form."}
        raise ValidationFailed([{**missing, "code": "missing"}])
    row = uploads.create_upload(
        call.session,
        call.actor,
        extensions().storage,
        campaign_id=campaign_id,
        filename=file.filename or "",
        stream=file.stream,
    )
    call.session.flush()
    return Upload.of(row)


@routes.add(
    Route(
        method="GET",
        path="/campaigns/<uuid:campaign_id>/uploads",
        kind=RouteKind.OBJECT,
        action=Action.VIEW,
        tag=TAG,
        summary="List the uploads of a campaign, the newest first",
        answer=UploadPage,
        query=PageQuery,
    )
)
def list_uploads(call: Call[Empty, PageQuery], campaign_id: UUID) -> UploadPage:
    rows = uploads.list_uploads(
        call.session,
        call.actor,
        campaign_id,
        limit=call.query.limit + 1,
        before=read_id_cursor(call.actor, call.query.cursor),
    )
    data, cursor = paged(call, rows, Upload.of, lambda row: row.id)
    return UploadPage(data=data, next_cursor=cursor)


@routes.add(
    Route(
        method="GET",
        path="/uploads/<uuid:upload_id>",
        kind=RouteKind.OBJECT,
        action=Action.VIEW,
        tag=TAG,
        summary="Get an upload with what was found in it",
        answer=Upload,
    )
)
def get_upload(call: Call[Empty, Empty], upload_id: UUID) -> Upload:
    return Upload.of(uploads.get_upload(call.session, call.actor, upload_id))


@routes.add(
    Route(
        method="POST",
        path="/uploads/<uuid:upload_id>/answers",
        kind=RouteKind.OBJECT,
        action=Action.EDIT,
        tag=TAG,
        summary="Answer the questions about a table; it is read again",
        answer=Upload,
        body=UploadAnswers,
    )
)
def answer_upload(call: Call[UploadAnswers, Empty], upload_id: UUID) -> Upload:
    row = uploads.answer_questions(
        call.session, call.actor, extensions().storage, upload_id, answers=call.body.answers
    )
    call.session.flush()
    return Upload.of(row)
