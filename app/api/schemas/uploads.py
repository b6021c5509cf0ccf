"""Uploads, as the API speaks of them."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from app.api.schemas.base import Id, Input, Output, Page, Text, Time
from app.models import Upload as UploadRow


class Upload(Output):
    """A table as it was received. While `is_open`, answer its `questions` before a batch.

    `findings` name what is wrong or was mended, each with its row, line and column.
    """

    id: Id
    campaign_id: Id
    filename: str
    sha256: str
    size_bytes: int
    row_count: int
    header: list[str]
    is_open: bool
    questions: list[dict[str, Any]]
    answers: dict[str, str]
    repair_count: int
    findings: list[dict[str, Any]]
    created_at: Time

    @classmethod
    def of(cls, row: UploadRow) -> Self:
        return cls(**{name: getattr(row, name) for name in cls.model_fields})


class UploadPage(Page[Upload]):
    pass


class UploadAnswers(Input):
    """Answers by the id of their question."""

    answers: dict[Text, Text] = Field(min_length=1, max_length=200)
