"""The archive of an export as a stream: files as they come from the store, manifests at its end."""

from __future__ import annotations

import io
import json
import logging
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from app.errors import NotFound
from app.services.exports import Export, ExportItem
from app.services.missing_files import REASON
from app.services.table_files import export_csv
from app.storage import Storage

LOG = logging.getLogger("app.exports")

BLOCK_BYTES: Final = 256 * 1024
# Columns of the CSV around the parameters and the columns of the row.
FIRST_COLUMNS: Final = ("file", "missing_reason", "number", "row_id")
LAST_COLUMNS: Final = (
    "review",
    "reason",
    "prompt",
    "negative_prompt",
    "seed",
    "width",
    "height",
    "num_frames",
    "fps",
    "profile",
    "media_type",
    "size_bytes",
    "sha256",
    "variant_id",
)


class _Outlet(io.RawIOBase):
    """What zipfile writes to; it cannot seek, so sizes and checksums follow each file."""

    def __init__(self) -> None:
        self._written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._written += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


def stream_archive(export: Export, storage: Storage) -> Iterator[bytes]:
    """The ZIP in blocks; never more than one block of one file is in memory.

    A file that is gone from the store is left out, and the manifests say so; any other trouble
    of the store breaks the stream off, so that nobody takes half an archive for a whole one.
    """
    outlet = _Outlet()
    moment = datetime.now(UTC)
    lines: list[dict[str, Any]] = []
    with zipfile.ZipFile(outlet, "w", zipfile.ZIP_STORED) as archive:
        for item in export.items:
            try:
                source = storage.open(item.storage_key)
            except NotFound:
                LOG.error("export: %s of %s is gone", item.storage_key, export.batch_id)
                gone = {"file": "", "is_missing": True, "missing_reason": REASON}
                lines.append({**item.manifest, **gone})
                continue
            lines.append({**item.manifest, "is_missing": False, "missing_reason": ""})
            with source, archive.open(_entry(item, moment), "w") as target:
                while block := source.read(BLOCK_BYTES):
                    target.write(block)
                    yield outlet.take()
        for name, blocks in (
            ("manifest.csv", _csv_manifest(export, lines)),
            ("manifest.json", _json_manifest(export, lines, moment)),
        ):
            info = zipfile.ZipInfo(name, moment.timetuple()[:6])
            info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=False) as target:
                for block in blocks:
                    target.write(block)
                    yield outlet.take()
    yield outlet.take()


def _entry(item: ExportItem, moment: datetime) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(item.name, moment.timetuple()[:6])
    # Videos and pictures are compressed already. The size tells whether 64-bit fields are needed.
    info.compress_type, info.file_size = zipfile.ZIP_STORED, item.size_bytes
    return info


def _csv_manifest(export: Export, lines: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    parameters = [name for name in export.parameters if name not in FIRST_COLUMNS]
    taken = {*FIRST_COLUMNS, *parameters, *LAST_COLUMNS}
    columns = [name for name in export.columns if name not in taken]
    rows = (
        [
            *(str(line[name]) for name in FIRST_COLUMNS),
            *(str(line["values"].get(name, "")) for name in parameters),
            *(str(line["passthrough"].get(name, "")) for name in columns),
            *(str(line[name]) for name in LAST_COLUMNS),
        ]
        for line in lines
    )
    return export_csv([*FIRST_COLUMNS, *parameters, *columns, *LAST_COLUMNS], rows)


def _json_manifest(
    export: Export, lines: Iterable[Mapping[str, Any]], moment: datetime
) -> Iterator[bytes]:
    head = {
        "campaign": export.campaign,
        "batch": export.batch,
        "batch_id": str(export.batch_id),
        "exported_at": moment.isoformat(timespec="seconds"),
    }
    yield (json.dumps(head, ensure_ascii=False)[:-1] + ', "variants": [').encode()
    for number, line in enumerate(lines):
        yield ((",\n" if number else "\n") + json.dumps(line, ensure_ascii=False)).encode()
    yield b"\n]}\n"
