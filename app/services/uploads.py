"""Uploads: a table kept as it was received, checked row by row before anything is made of it."""

from __future__ import annotations

import csv
import hashlib
import io
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import IO, BinaryIO, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.access import Action, Actor, require
from app.errors import InvalidInput, LimitExceeded
from app.models import Upload
from app.services.campaigns import CampaignDetails, get_campaign
from app.services.prompts import MAX_VALUE_LENGTH, optional_names
from app.services.scoping import get_in_workspace
from app.services.table_dialect import Dialect, normalise_name
from app.services.table_findings import FindingLog, Severity, TableError, TableFinding
from app.services.tables import Table, open_table
from app.storage import Storage

MAX_BYTES: Final = 32 * 2**20
ROW_ID: Final = "row_id"
MAX_FILENAME_LENGTH: Final = 255
_SAMPLE_ROWS: Final = 3
# Rows that tell whether the first line is data.
_LOOK_AT_ROWS: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class UploadRow:
    """A data row: `number` counts from 1, `line` is where it begins; cells by column name."""

    number: int
    line: int
    cells: Mapping[str, str]


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

    TableError holds every finding; then nothing was stored. Repairs and warnings are kept with
    the upload.
    """
    require(actor, Action.EDIT)
    details = get_campaign(session, actor, campaign_id)
    with tempfile.TemporaryDirectory(prefix="adloom-upload-") as folder:
        path = Path(folder) / "table"
        sha256 = _copy_limited(stream, path)
        with path.open("rb") as file:
            table, row_count, findings = check_table(
                file,
                names=[item.name for item in details.parameters],
                typed={item.name for item in details.parameters if item.values},
                optional=optional_names(details.template.text, details.template.negative_text),
            )
        # The name is the content, so the same file is stored once.
        key = f"uploads/{actor.workspace_id}/{sha256}.csv"
        size_bytes = path.stat().st_size
        storage.put_file(key, path, media_type="text/csv")
    upload = Upload(
        workspace_id=actor.workspace_id,
        campaign_id=campaign_id,
        filename=_clean_filename(filename),
        storage_key=key,
        sha256=sha256,
        size_bytes=size_bytes,
        row_count=row_count,
        header=list(table.header),
        dialect=table.dialect.to_dict(),
        findings=[finding.to_dict() for finding in findings],
        created_by=actor.user_id,
    )
    session.add(upload)
    session.flush()
    return upload


def get_upload(session: Session, actor: Actor, upload_id: UUID) -> Upload:
    require(actor, Action.VIEW)
    return get_in_workspace(session, actor, Upload, upload_id)


def read_rows(storage: Storage, upload: Upload) -> Iterator[UploadRow]:
    """The rows of an upload in file order, read as they were when it was checked."""
    with ExitStack() as stack:
        file: BinaryIO = stack.enter_context(storage.open(upload.storage_key))
        if not file.seekable():
            # What comes from a bucket cannot be wound back to its start.
            copy = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, copy)
            file = copy
        yield from _named(open_table(file, dialect=Dialect.from_dict(upload.dialect)))


def map_columns(header: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """Column by placeholder, where they agree; case, blanks, hyphens and _ do not count."""
    columns = {normalise_name(column): column for column in header}
    found = {name: columns.get(normalise_name(name)) for name in names}
    return {name: column for name, column in found.items() if column is not None}


def find_row_id_column(header: Sequence[str]) -> str | None:
    """The column that names the rows, if there is one."""
    return next((column for column in header if normalise_name(column) == ROW_ID), None)


def check_columns(header: Sequence[str], columns: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise InvalidInput that lists the placeholders without a column and the nearest names."""
    problems: list[str] = []
    first = ""
    for name in names:
        column = columns.get(name)
        if column in header:
            continue
        first = first or name
        what = f"there is no column “{column}”" if column else f"no column for {{{{ {name} }}}}"
        near = suggest_column(name, header)
        problems.append(f"{what}; did you mean “{near}”?" if near else what)
    if problems:
        raise InvalidInput(
            f"The table does not fit the prompt: {'; '.join(problems)}. Its columns are"
            f" {', '.join(header)}.",
            field=first,
        )


def suggest_column(name: str, header: Sequence[str]) -> str | None:
    """The column whose name is most like that of a placeholder."""
    columns = {normalise_name(column): column for column in header}
    wanted = normalise_name(name)
    near = get_close_matches(wanted, columns, n=1, cutoff=0.6)
    if near:
        return columns[near[0]]
    # “city_name” for “city”, and the other way round.
    return next(
        (column for key, column in columns.items() if wanted in key or (key and key in wanted)),
        None,
    )


def check_values(
    rows: Iterable[UploadRow], columns: Mapping[str, str], *, optional: Iterable[str] = ()
) -> list[TableFinding]:
    """Errors of the values that fill placeholders: missing or too long, by row and column."""
    log = FindingLog()
    may_be_empty = set(optional)
    for row in rows:
        for name, column in columns.items():
            value = row.cells[column]
            if not value and name not in may_be_empty:
                message = f"there is no value for {{{{ {name} }}}}; fill the cell or delete the row"
                log.add(_at(row, column, "missing_value", message))
            elif len(value) > MAX_VALUE_LENGTH:
                message = (
                    f"this value has {len(value):,} characters; {MAX_VALUE_LENGTH} are allowed"
                    " for a placeholder"
                )
                log.add(_at(row, column, "long_value", message))
    return log.findings()


def check_table(
    file: BinaryIO,
    *,
    names: Sequence[str],
    typed: Collection[str] = (),
    optional: Collection[str] = (),
) -> tuple[Table, int, list[TableFinding]]:
    """Read the whole table against the placeholders' names; gives its rows' number and findings.

    `typed` have values without it, `optional` may stay empty. TableError with all findings when
    one is an error.
    """
    table = open_table(file, expected=names)
    columns = map_columns(table.header, names)
    look = _HeaderLook(table.header)
    found = check_values(look.watch(_named(table)), columns, optional=optional)
    findings = [
        *_check_header(table.header, columns, [n for n in names if n not in typed], look),
        *table.findings,
        *found,
    ]
    if any(item.severity is Severity.ERROR for item in findings):
        raise TableError(findings)
    return table, look.row_count, findings


def sample_csv(details: CampaignDetails) -> bytes:
    """A table to start from: the campaign's columns with its first values, as Excel reads it."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow([ROW_ID, *(item.name for item in details.parameters)])
    for number in range(_SAMPLE_ROWS):
        values = [
            item.values[number % len(item.values)] if item.values else f"{item.name} {number + 1}"
            for item in details.parameters
        ]
        writer.writerow([str(number + 1), *values])
    return ("\ufeff" + buffer.getvalue()).encode()


def _at(row: UploadRow, column: str, code: str, message: str) -> TableFinding:
    return TableFinding(
        severity=Severity.ERROR,
        code=code,
        message=message,
        row=row.number,
        line=row.line,
        column=column,
    )


def _copy_limited(stream: IO[bytes], path: Path) -> str:
    """Copy at most MAX_BYTES to `path` and return the content's SHA-256."""
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
    return digest.hexdigest()


class _HeaderLook:
    """Counts rows and notices when a “header” stands in the rows again, cell by cell."""

    def __init__(self, header: Sequence[str]) -> None:
        self.row_count = 0
        self.is_like_data = False
        self._keys = [name.casefold() for name in header]

    def watch(self, rows: Iterable[UploadRow]) -> Iterator[UploadRow]:
        for row in rows:
            self.row_count += 1
            if not self.is_like_data and self.row_count <= _LOOK_AT_ROWS:
                cells = [cell.casefold() for cell in row.cells.values()]
                self.is_like_data = any(map(str.__eq__, cells, self._keys))
            yield row


def _check_header(
    header: Sequence[str], columns: Mapping[str, str], names: Sequence[str], look: _HeaderLook
) -> list[TableFinding]:
    """What does not fit between the header and the placeholders that have no typed values."""
    shown = ", ".join(header[:5]) + (" …" if len(header) > 5 else "")
    if names and not columns and look.is_like_data:
        message = (
            f"the first line ({shown}) looks like data, not like a header; add a line above it"
            f" with the column names, such as {','.join((ROW_ID, *names))}"
        )
        return [_in_header(Severity.ERROR, "no_header", message)]
    if names and not columns:
        message = (
            f"no column ({shown}) is called like a placeholder ({', '.join(names)}); choose the"
            " columns by hand, or rename them"
        )
        return [_in_header(Severity.WARNING, "no_known_column", message)]
    findings: list[TableFinding] = []
    for name in names:
        if name not in columns:
            near = suggest_column(name, header)
            hint = f"; did you mean “{near}”?" if near else ""
            message = f"there is no column for {{{{ {name} }}}}{hint}"
            findings.append(_in_header(Severity.WARNING, "missing_column", message))
    return findings


def _in_header(severity: Severity, code: str, message: str) -> TableFinding:
    return TableFinding(severity=severity, code=code, message=message, line=1)


def _named(table: Table) -> Iterator[UploadRow]:
    for row in table.rows():
        cells = dict(zip(table.header, row.cells, strict=True))
        yield UploadRow(number=row.number, line=row.line, cells=cells)


def _clean_filename(filename: str) -> str:
    """The name for the screen alone, without folders or control characters."""
    name = filename.replace("\\", "/").rpartition("/")[2]
    return "".join(filter(str.isprintable, name)).strip()[-MAX_FILENAME_LENGTH:] or "table.csv"
