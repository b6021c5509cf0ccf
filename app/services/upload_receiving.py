"""A table on its way in: taken within limits, read to its end, kept only when it can be used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from sqlalchemy.orm import Session

from app.errors import LimitExceeded
from app.models import Upload
from app.services.campaigns import CampaignDetails
from app.services.prompts import optional_names
from app.services.table_changes import TableChanges, Version, compare
from app.services.table_files import TableFiles, UploadRow, read_mended
from app.services.table_pass import Needs, TablePass
from app.services.term_index import TermIndex
from app.services.upload_rows import find_earlier, read_rows
from app.storage import Storage

MAX_BYTES: Final = 32 * 2**20


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How far the check of a table is; `expected` is about how many rows there will be."""

    rows: int
    expected: int | None


class Incoming:
    """A table on its way in: `check` reads it, `keep` stores it; nothing is kept before."""

    def __init__(
        self,
        folder: Path,
        details: CampaignDetails,
        *,
        remembered: Mapping[str, str],
        answers: Mapping[str, str],
        max_rows: int,
        terms: TermIndex,
    ) -> None:
        self.path = folder / "table"
        self._files = TableFiles(folder)
        self._answers = answers
        self._needs = Needs(
            names=[item.name for item in details.parameters],
            typed={item.name for item in details.parameters if item.values},
            optional=optional_names(details.template.text, details.template.negative_text),
            remembered=remembered,
            max_rows=max_rows,
            terms=terms,
        )

    def check(self) -> Iterator[Reading]:
        """Read every row, telling now and then how far it is; TableError holds every finding."""
        expected = None if is_zip(self.path) else _count_lines(self.path)
        with self._files, self.path.open("rb") as file:
            reading = TablePass(file, self._needs, answers=self._answers, files=self._files)
            for rows in reading.steps():
                yield Reading(rows=rows, expected=expected)
        self._checked = reading.result

    def keep(self, session: Session, storage: Storage, upload: Upload) -> None:
        """Store what was read and write it down on the upload's row."""
        checked = self._checked
        if checked is None:
            raise ValueError("check() has to be read to its end first")
        upload.answers = dict(self._answers)
        upload.questions = [question.to_dict() for question in checked.questions]
        upload.row_count = checked.row_count
        upload.header = list(checked.header)
        upload.dialect = dict(checked.reading)
        upload.findings = [finding.to_dict() for finding in checked.findings]
        upload.repair_count = checked.repair_count
        upload.is_open = checked.is_open
        if not checked.is_open:
            upload.table_key = self._put(storage, upload, self._files.table)
            upload.repairs_key = None
            if checked.repair_count:
                upload.repairs_key = self._put(storage, upload, self._files.repairs)
            changes = self._compare(session, storage, upload)
            upload.changes = changes.to_dict() if changes else None
        session.add(upload)
        session.flush()

    def _put(self, storage: Storage, upload: Upload, path: Path) -> str:
        key = f"uploads/{upload.workspace_id}/{_hash_file(path)}.rows.csv"
        storage.put_file(key, path, media_type="text/csv")
        return key

    def _compare(self, session: Session, storage: Storage, upload: Upload) -> TableChanges | None:
        earlier = find_earlier(session, upload)
        if earlier is None or earlier.sha256 == upload.sha256:
            return None

        def read_new() -> Iterator[UploadRow]:
            with self._files.table.open("rb") as file:
                yield from read_mended(file, upload.header)

        return compare(
            Version(header=earlier.header, read=lambda: read_rows(storage, earlier)),
            Version(header=upload.header, read=read_new),
            filename=earlier.filename,
        )


def copy_limited(stream: IO[bytes], path: Path) -> tuple[str, int]:
    """Copy at most MAX_BYTES to `path`; gives the content's SHA-256 and its size."""
    digest, size_bytes = hashlib.sha256(), 0
    with path.open("wb") as file:
        while chunk := stream.read(2**20):
            size_bytes += len(chunk)
            if size_bytes > MAX_BYTES:
                raise LimitExceeded(
                    f"The file is larger than {MAX_BYTES // 2**20} MB; split it, or drop columns"
                    " that the videos do not need.",
                    field="file",
                )
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest(), size_bytes


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))


def is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"
