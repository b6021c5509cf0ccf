"""What the pages of an upload show: its columns, questions, changes, findings and repairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from app.models import Upload
from app.services import uploads
from app.services.campaigns import CampaignDetails
from app.services.prompts import optional_names
from app.services.table_changes import TableChanges
from app.services.table_findings import Severity, TableFinding
from app.services.table_questions import Question
from app.storage import Storage

FIRST_ROWS = 8
FIRST_REPAIRS = 50
TONES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.REPAIR: "info"}
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True, kw_only=True)
class ColumnChoice:
    """A placeholder, the column chosen or suggested for it, and the first value in there.

    `typed` counts the values typed in the campaign, which serve where no column is chosen;
    `reason` says why a column was suggested that is not called like the placeholder. One that is
    required has neither typed values nor a place in the prompt that does without.
    """

    name: str
    kind: str
    column: str | None
    typed: int
    example: str | None
    reason: str
    is_required: bool

    @property
    def is_missing(self) -> bool:
        return self.is_required and self.column is None


@dataclass(frozen=True, kw_only=True)
class AskedQuestion:
    """A question with the answer that is chosen now."""

    question: Question
    chosen: str | None
    is_answered: bool


def asked_questions(upload: Upload) -> list[AskedQuestion]:
    return [
        AskedQuestion(
            question=question,
            chosen=upload.answers.get(question.question_id, question.preset),
            is_answered=question.question_id in upload.answers or not question.is_required,
        )
        for question in uploads.list_questions(upload)
    ]


def upload_context(
    session: Session,
    storage: Storage,
    upload: Upload,
    details: CampaignDetails,
    *,
    columns: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Everything that the page of an upload without open questions shows."""
    rows = list(islice(uploads.read_rows(storage, upload), FIRST_ROWS))
    mapping = _mapping(
        session, upload, details, columns=columns, first=rows[0].cells if rows else {}
    )
    taken = {item.column for item in mapping}
    return {
        "mapping": mapping,
        "missing": [item.name for item in mapping if item.is_missing],
        "kept_columns": [
            name
            for name in upload.header
            if name not in taken and name != uploads.find_row_id_column(upload.header)
        ],
        "row_id_column": uploads.find_row_id_column(upload.header),
        "rows": [
            {"number": row.number, "cells": [row.cells[name] for name in upload.header]}
            for row in rows
        ],
        "changes": TableChanges.from_dict(upload.changes) if upload.changes else None,
        "repairs": list(islice(uploads.list_repairs(storage, upload), FIRST_REPAIRS)),
        "findings": finding_lines(upload),
    }


def finding_lines(upload: Upload) -> list[dict[str, str]]:
    found = map(TableFinding.from_dict, upload.findings)
    return [{"tone": TONES[item.severity], "message": str(item)} for item in found]


def reading_words(reading: Mapping[str, str]) -> str:
    """How the file was read: “UTF-8, commas” or “the sheet “Ads””."""
    if "sheet" in reading:
        return f"the sheet “{reading['sheet']}”"
    delimiter = reading.get("delimiter", "")
    words = [
        reading.get("encoding", "").removesuffix("-sig").upper(),
        DELIMITERS.get(delimiter, delimiter),
    ]
    return ", ".join(word for word in words if word)


def _mapping(
    session: Session,
    upload: Upload,
    details: CampaignDetails,
    *,
    columns: Mapping[str, str] | None,
    first: Mapping[str, str],
) -> Sequence[ColumnChoice]:
    names = [item.name for item in details.parameters]
    remembered = uploads.find_remembered_columns(session, upload.campaign_id)
    exact = uploads.map_columns(upload.header, names)
    suggested = uploads.suggest_columns(upload.header, names, remembered=remembered)
    chosen = suggested if columns is None else columns
    optional = optional_names(details.template.text, details.template.negative_text)

    def reason(name: str) -> str:
        column = chosen.get(name)
        if column is None or column != suggested.get(name) or column == exact.get(name):
            return ""
        return "as last time" if name in remembered else "similar name, please check"

    return [
        ColumnChoice(
            name=item.name,
            kind=item.kind,
            column=chosen.get(item.name),
            typed=len(item.values),
            example=first.get(chosen.get(item.name, "")),
            reason=reason(item.name),
            is_required=not item.values and item.name not in optional,
        )
        for item in details.parameters
    ]
