"""Contact sheets: the posters of chosen variants on one picture, each above what it shows."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.errors import NotFound, StorageError
from app.storage import Storage

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

MAX_VARIANTS: Final = 48
_COLUMNS: Final = 6
_CELL: Final = 320  # pixels, the longer side of a picture
_GAP: Final = 16
_TEXT_SIZE: Final = 15
_LINE: Final = 19
_MARGIN_TOP: Final = 56
_PAPER, _INK, _QUIET = "#ffffff", "#1a1c21", "#63676f"


@dataclass(frozen=True, kw_only=True)
class SheetItem:
    """A picture of the sheet: where its poster lies, a short title, a line below it."""

    poster_key: str
    title: str
    text: str


def draw_sheet(items: Sequence[SheetItem], storage: Storage, *, heading: str) -> bytes:
    """The sheet as a PNG, pictures in the given order; a missing poster leaves its cell empty."""
    # Local import: Pillow would cost every web process 15 MB that few requests need.
    from PIL import Image, ImageDraw, ImageFont

    pictures = [_read_poster(storage, item.poster_key) for item in items]
    width = max((picture.width for picture in pictures if picture), default=_CELL)
    height = max((picture.height for picture in pictures if picture), default=_CELL)
    columns = min(_COLUMNS, len(items))
    rows = -(-len(items) // columns)
    row_height = height + 2 * _LINE + _GAP
    sheet = Image.new(
        "RGB",
        (_GAP + columns * (width + _GAP), _MARGIN_TOP + rows * row_height + _GAP),
        _PAPER,
    )
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=_TEXT_SIZE)
    draw.text((_GAP, _GAP), _fit(heading, font, sheet.width - 2 * _GAP), _INK, font)
    for index, (item, picture) in enumerate(zip(items, pictures, strict=True)):
        row, column = divmod(index, columns)
        left, top = _GAP + column * (width + _GAP), _MARGIN_TOP + row * row_height
        if picture is not None:
            sheet.paste(picture, (left + (width - picture.width) // 2, top))
        _write(draw, item, font, left=left, top=top + height + 4, width=width)
    file = io.BytesIO()
    sheet.save(file, format="PNG", optimize=False)
    return file.getvalue()


def _read_poster(storage: Storage, key: str) -> Image.Image | None:
    from PIL import Image, UnidentifiedImageError

    try:
        with storage.open(key) as file, Image.open(file) as poster:
            picture = poster.convert("RGB")
    except (NotFound, UnidentifiedImageError):
        return None
    except OSError as error:
        raise StorageError(f"A poster cannot be read from the store: {error}") from error
    picture.thumbnail((_CELL, _CELL))
    return picture


def _write(
    draw: ImageDraw.ImageDraw,
    item: SheetItem,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    *,
    left: int,
    top: int,
    width: int,
) -> None:
    draw.text((left, top), _fit(item.title, font, width), _INK, font)
    draw.text((left, top + _LINE), _fit(item.text, font, width), _QUIET, font)


def _fit(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """The text, cut with an ellipsis where it is wider than so many pixels."""
    text = " ".join(text.split())
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text.rstrip()}…"
