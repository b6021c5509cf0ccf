"""An XLSX as a ZIP package: its limits, and what is looked up in a sheet without reading it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from typing import BinaryIO, Final

from app.services.table_findings import TableError, fail

# A hundred thousand rows of thirty columns unpack to about 150 MB.
MAX_UNPACKED_BYTES: Final = 400 * 2**20
# Held in memory as a list of texts.
MAX_STRINGS_BYTES: Final = 64 * 2**20
# Styles, names and relations, read as a whole.
MAX_PART_BYTES: Final = 8 * 2**20
MAX_PARTS: Final = 2_000
_CHUNK_BYTES: Final = 2**20
_HEAD_BYTES: Final = 4_096

_MERGED = re.compile(rb"<(?:\w+:)?mergeCell\s[^>]*?ref=[\"']([A-Z0-9:$]{1,40})[\"']")
_FORMULA = re.compile(rb"<(?:\w+:)?f[\s>/]")
# The longest piece of a tag that may be cut by a chunk's end.
_OVERLAP: Final = 200


def check_package(stream: BinaryIO) -> None:
    """TableError unless the package is an XLSX that unpacks within the limits.

    The sizes that a ZIP states are what is ever unpacked: zipfile stops there.
    """
    stream.seek(0)
    try:
        with zipfile.ZipFile(stream) as package:
            parts = package.infolist()
            names = {part.filename for part in parts}
            if "xl/workbook.xml" not in names:
                raise _not_a_workbook(names)
            if len(parts) > MAX_PARTS:
                raise fail("too_large", f"this workbook has more than {MAX_PARTS:,} parts")
            _check_sizes(parts)
            for part in parts:
                if part.flag_bits & 1:
                    raise fail(
                        "encrypted", "this workbook is encrypted; save it without a password"
                    )
                if part.filename.endswith((".xml", ".rels")):
                    _check_markup(package, part)
    # zipfile says NotImplementedError of a compression that it does not know.
    except (zipfile.BadZipFile, NotImplementedError, OSError):
        message = "this workbook is damaged or was cut short; save it anew, or as “CSV UTF-8”"
        raise fail("damaged_workbook", message) from None


def find_merged_cells(stream: BinaryIO, path: str) -> list[str]:
    """The addresses of merged cells of a sheet, such as A1:B2."""
    found = [match for chunk in _chunks(stream, path) for match in _MERGED.findall(chunk)]
    # The overlap of two chunks may show one twice.
    return [address.decode() for address in dict.fromkeys(found)]


def has_formulas(stream: BinaryIO, path: str) -> bool:
    return any(_FORMULA.search(chunk) for chunk in _chunks(stream, path))


def _check_sizes(parts: list[zipfile.ZipInfo]) -> None:
    total = sum(part.file_size for part in parts)
    if total > MAX_UNPACKED_BYTES:
        raise _bomb("it", total, MAX_UNPACKED_BYTES)
    for part in parts:
        if part.filename.startswith("xl/worksheets/sheet") or "/media/" in part.filename:
            continue
        is_strings = part.filename == "xl/sharedStrings.xml"
        limit = MAX_STRINGS_BYTES if is_strings else MAX_PART_BYTES
        if part.file_size > limit:
            raise _bomb(f"its part {part.filename[:60]}", part.file_size, limit)


def _check_markup(package: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    """Refuse a document type: the format has none, and its entities can fill the memory."""
    with package.open(part) as file:
        head = file.read(_HEAD_BYTES)
    if b"<!DOCTYPE" in head or b"<!ENTITY" in head:
        message = f"the part {part.filename[:60]} of this workbook declares entities; save it anew"
        raise fail("unsafe_workbook", message)


def _bomb(what: str, size_bytes: int, limit_bytes: int) -> TableError:
    return fail(
        "too_large",
        f"this workbook is too large once unpacked: {what} would take {size_bytes / 2**20:,.0f} MB,"
        f" and {limit_bytes / 2**20:,.0f} MB are allowed; save the sheet as “CSV UTF-8”",
    )


def _not_a_workbook(names: set[str]) -> TableError:
    if "content.xml" in names:
        what = "an OpenDocument spreadsheet"
    elif "xl/workbook.bin" in names:
        what = "a binary Excel workbook"
    else:
        what = "a ZIP archive, not a workbook"
    return fail("not_text", f"this is {what}; save it as XLSX or as “CSV UTF-8”")


def _chunks(stream: BinaryIO, path: str) -> Iterator[bytes]:
    stream.seek(0)
    with zipfile.ZipFile(stream) as package, package.open(path.lstrip("/")) as file:
        tail = b""
        while chunk := file.read(_CHUNK_BYTES):
            yield tail + chunk
            tail = chunk[-_OVERLAP:]
