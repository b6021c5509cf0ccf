"""A table to start from: a campaign's columns with its first values, as CSV or XLSX."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Final

from app.services.campaigns import CampaignDetails
from app.services.table_columns import ROW_ID
from app.services.table_files import export_csv

_ROWS: Final = 3
_COLUMN_WIDTH: Final = 24
_TEXT_FORMAT: Final = "@"  # keeps 07307 from becoming 7307 when somebody types it


def sample_csv(details: CampaignDetails) -> bytes:
    header, *rows = _table(details)
    return b"".join(export_csv(header, rows))


def sample_xlsx(details: CampaignDetails) -> bytes:
    # Local imports: openpyxl brings numpy and Pillow into the web processes.
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Font
    from openpyxl.utils import get_column_letter

    book = Workbook(write_only=True)
    sheet = book.create_sheet("Variants")
    sheet.freeze_panes = "A2"
    for number, texts in enumerate(_table(details)):
        cells = []
        for column, text in enumerate(texts, 1):
            sheet.column_dimensions[get_column_letter(column)].width = _COLUMN_WIDTH
            cell = WriteOnlyCell(sheet, value=text)
            cell.data_type = "s"  # a value that begins with = is no formula
            cell.number_format = _TEXT_FORMAT
            cell.font = Font(bold=number == 0)
            cells.append(cell)
        sheet.append(cells)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def _table(details: CampaignDetails) -> Iterator[Sequence[str]]:
    yield [ROW_ID, *(item.name for item in details.parameters)]
    for number in range(_ROWS):
        values = [
            item.values[number % len(item.values)] if item.values else f"{item.name} {number + 1}"
            for item in details.parameters
        ]
        yield [str(number + 1), *values]
