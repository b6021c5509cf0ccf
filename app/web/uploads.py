"""Spreadsheet pages: choose a file, see what was found in it, match its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from uuid import UUID

from flask import Blueprint, Response, redirect, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput
from app.extensions import extensions
from app.services import campaigns, uploads
from app.services.table_findings import Severity, TableError, TableFinding
from app.web.scope import page, signed_in, start_over

blueprint = Blueprint("uploads", __name__)

FIRST_ROWS = 8


TONES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.REPAIR: "info"}


@dataclass(frozen=True, kw_only=True)
class ColumnChoice:
    """A placeholder, the column chosen or suggested for it, and the first value in there.

    `typed` counts the values typed in the campaign, which serve where no column is chosen.
    """

    name: str
    kind: str
    column: str | None
    typed: int
    example: str | None


@blueprint.get("/campaigns/<uuid:campaign_id>/upload")
@signed_in
def new(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    require(actor, Action.EDIT)
    return _upload_page(session, actor, campaign_id)


@blueprint.post("/campaigns/<uuid:campaign_id>/upload")
@signed_in
def create(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    """Keep the file as it is, check every row, and go on to the columns."""
    file = request.files.get("file")
    try:
        if file is None or not file.filename:
            raise InvalidInput("Choose a file first.", field="file")
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


@blueprint.get("/campaigns/<uuid:campaign_id>/sample.csv")
@signed_in
def sample(session: Session, actor: Actor, campaign_id: UUID) -> ResponseReturnValue:
    details = campaigns.get_campaign(session, actor, campaign_id)
    return Response(
        uploads.sample_csv(details),
        mimetype="text/csv",
        headers={"Content-Disposition": 'attachment; filename="adloom-sample.csv"'},
    )


@blueprint.get("/uploads/<uuid:upload_id>")
@signed_in
def show(session: Session, actor: Actor, upload_id: UUID) -> ResponseReturnValue:
    return mapping_page(session, actor, upload_id)


def mapping_page(
    session: Session,
    actor: Actor,
    upload_id: UUID,
    *,
    columns: Mapping[str, str] | None = None,
    error: InvalidInput | None = None,
) -> Response:
    """The columns of an upload beside the campaign's placeholders; `columns` are the choices."""
    upload = uploads.get_upload(session, actor, upload_id)
    details = campaigns.get_campaign(session, actor, upload.campaign_id)
    rows = list(islice(uploads.read_rows(extensions().storage, upload), FIRST_ROWS))
    names = [item.name for item in details.parameters]
    chosen = columns if columns is not None else _suggested(upload.header, names)
    mapping = [
        ColumnChoice(
            name=item.name,
            kind=item.kind,
            column=chosen.get(item.name),
            typed=len(item.values),
            example=rows[0].cells.get(chosen.get(item.name, "")) if rows else None,
        )
        for item in details.parameters
    ]
    return page(
        "uploads/show.html",
        status=error.status if error else 200,
        upload=upload,
        campaign=details.campaign,
        mapping=mapping,
        wrong=error.field if error else None,
        rows=[
            {"number": row.number, "cells": [row.cells[name] for name in upload.header]}
            for row in rows
        ],
        findings=[
            {"tone": TONES[finding.severity], "message": str(finding)}
            for finding in map(TableFinding.from_dict, upload.findings)
        ],
        dialect_words=_dialect_words(upload.dialect),
        error=error.message if error else None,
    )


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
        findings_title="This file cannot be used yet. Nothing was saved.",
    )


def _suggested(header: list[str], names: list[str]) -> dict[str, str]:
    """Columns that agree by name, then those that are like it."""
    found = uploads.map_columns(header, names)
    near = {name: uploads.suggest_column(name, header) for name in names if name not in found}
    taken = set(found.values())
    return found | {name: column for name, column in near.items() if column and column not in taken}


def _findings(error: InvalidInput) -> list[str]:
    if isinstance(error, TableError):
        return [str(finding) for finding in error.findings]
    return [error.message]


def _dialect_words(dialect: Mapping[str, str]) -> str:
    delimiters = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
    delimiter = dialect.get("delimiter", "")
    words = [dialect.get("encoding", "").upper(), delimiters.get(delimiter, delimiter)]
    return ", ".join(word for word in words if word)
