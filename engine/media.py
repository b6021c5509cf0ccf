"""Files from frames and frames from files: videos, stills, posters, previews, contact sheets.

Frames are uint8 RGB of shape (F, H, W, 3). Every file is written beside its place and then moved
there, so a reader sees a whole file or none.
"""

from __future__ import annotations

import errno
import platform
import unicodedata
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from engine.errors import DiskFull, InvalidRequest, MediaError
from engine.types import Audio

Frames = NDArray[np.uint8]

# Visually lossless at small sizes, where every block is a large part of the picture.
VIDEO_CRF = 17
# Fixed, because the encoder's output depends on it and equal frames should give equal files.
VIDEO_THREADS = 2
_X264_OPTIONS = {"crf": str(VIDEO_CRF), "preset": "slow"}
if platform.machine() in ("x86_64", "AMD64"):
    # The AVX-512 routines of x264 are not reproducible: 277 of 1,200 encodes of the same frames
    # differed. With SSE4.2 alone none of 1,200 did, at the same speed for small pictures.
    _X264_OPTIONS["x264-params"] = "asm=sse4.2"
PREVIEW_LONG_SIDE = 256
PREVIEW_MAX_FPS = 12
PREVIEW_MAX_FRAMES = 36
POSTER_QUALITY = 90
MAX_PICTURE_SIDE = 16_384

# Contact sheet, in pixels and colours.
_SHEET_GAP = 12
_LABEL_SIZE = 13
_LABEL_LINE = 18
_PAPER = (250, 249, 246)
_INK = (38, 38, 42)
# Pillow's built-in font draws ASCII and these; what Unicode cannot decompose is spelled by hand.
_DRAWABLE = frozenset("·‘’“”«»°")
_SPELLINGS = str.maketrans({"–": "-", "—": "-", "ß": "ss", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"})


def encode_video(frames: Frames, fps: int, path: Path, *, audio: Audio | None = None) -> None:
    """Write H.264 in MP4: yuv420p, BT.709, constant rate, index before the data (faststart).

    Sound goes beside it as AAC.

    Raises InvalidRequest for frames that yuv420p cannot hold, MediaError where writing fails.
    """
    _check_frames(frames)
    _, height, width, _ = frames.shape
    if width % 2 or height % 2:
        raise InvalidRequest("size", f"A video needs even sides, not {width}x{height}.")
    # The default movie clock ticks in milliseconds and would round the duration.
    muxer = {"movflags": "+faststart", "movie_timescale": str(1000 * fps)}
    with (
        _whole_file(path) as temporary,
        av.open(str(temporary), "w", format="mp4", options=muxer) as container,
    ):
        stream = container.add_stream("libx264", rate=fps, options=dict(_X264_OPTIONS))
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        codec = stream.codec_context
        codec.thread_count = VIDEO_THREADS
        # Without these tags a player guesses the matrix from the size, and small clips turn green.
        codec.colorspace = Colorspace.ITU709
        codec.color_primaries = ColorPrimaries.BT709
        codec.color_trc = ColorTrc.BT709
        codec.color_range = ColorRange.MPEG
        sound = None if audio is None else _audio_stream(container, audio)
        for index, pixels in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            picture = picture.reformat(
                format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG
            )
            picture.pts = index
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
        if audio is not None and sound is not None:
            samples = np.ascontiguousarray(audio.samples.T, dtype=np.float32)
            heard = av.AudioFrame.from_ndarray(samples, format="fltp", layout=sound.layout.name)
            heard.sample_rate, heard.pts = audio.rate, 0
            container.mux(sound.encode(heard))
            container.mux(sound.encode(None))


def _audio_stream(container: Any, audio: Audio) -> Any:
    """A stream for the sound; it must be there before the first picture is written."""
    layouts = {1: "mono", 2: "stereo"}
    channels = audio.samples.shape[1] if audio.samples.ndim == 2 else 0
    if channels not in layouts or not len(audio.samples):
        raise InvalidRequest(
            "audio", f"Sound is (N, 1 or 2 channels) with N >= 1, not {audio.samples.shape}."
        )
    return container.add_stream("aac", rate=audio.rate, layout=layouts[channels])


def write_image(frames: Frames, path: Path) -> None:
    """Write the only frame of a still as PNG, lossless."""
    _check_frames(frames)
    if len(frames) != 1:
        raise InvalidRequest("num_frames", f"A still has 1 frame, not {len(frames)}.")
    with _whole_file(path) as temporary:
        Image.fromarray(frames[0]).save(temporary, format="PNG", optimize=True)


def write_poster(frames: Frames, path: Path) -> None:
    """Write the middle frame as JPEG or WebP, by the path's suffix."""
    _check_frames(frames)
    formats = {".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
    if path.suffix.lower() not in formats:
        raise InvalidRequest("path", f"A poster is .jpg or .webp, not {path.name!r}.")
    with _whole_file(path) as temporary:
        Image.fromarray(frames[len(frames) // 2]).save(
            temporary, format=formats[path.suffix.lower()], quality=POSTER_QUALITY
        )


def write_preview(frames: Frames, fps: int, path: Path) -> None:
    """Write a small animated WebP that loops: at most 256 pixels, 12 frames a second, 3 seconds."""
    _check_frames(frames)
    stride = -(-fps // PREVIEW_MAX_FPS)
    pictures = [Image.fromarray(pixels) for pixels in frames[::stride][:PREVIEW_MAX_FRAMES]]
    for picture in pictures:
        picture.thumbnail((PREVIEW_LONG_SIDE, PREVIEW_LONG_SIDE), Image.Resampling.LANCZOS)
    with _whole_file(path) as temporary:
        pictures[0].save(
            temporary,
            format="WEBP",
            save_all=True,
            append_images=pictures[1:],
            duration=round(1000 * stride / fps),
            loop=0,
            quality=70,
            method=4,
        )


def contact_sheet(
    tiles: Sequence[NDArray[np.uint8]], path: Path, *, columns: int, labels: Sequence[str] = ()
) -> None:
    """Write pictures (H, W, 3) in rows as one PNG, each above its label.

    A label takes two lines at most and is cut with an ellipsis. Smaller pictures are centred in
    cells of the largest one's size.
    """
    if not tiles or columns < 1:
        raise InvalidRequest("tiles", "A contact sheet needs at least one picture and one column.")
    if labels and len(labels) != len(tiles):
        raise InvalidRequest("labels", f"{len(tiles)} pictures, but {len(labels)} labels.")
    columns = min(columns, len(tiles))
    cell_width = max(tile.shape[1] for tile in tiles)
    cell_height = max(tile.shape[0] for tile in tiles)
    row_height = cell_height + (2 * _LABEL_LINE if labels else 0) + _SHEET_GAP
    rows = -(-len(tiles) // columns)
    sheet = Image.new(
        "RGB",
        (_SHEET_GAP + columns * (cell_width + _SHEET_GAP), _SHEET_GAP + rows * row_height),
        _PAPER,
    )
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=_LABEL_SIZE)
    for index, tile in enumerate(tiles):
        row, column = divmod(index, columns)
        left = _SHEET_GAP + column * (cell_width + _SHEET_GAP)
        top = _SHEET_GAP + row * row_height
        offset = ((cell_width - tile.shape[1]) // 2, (cell_height - tile.shape[0]) // 2)
        sheet.paste(Image.fromarray(tile), (left + offset[0], top + offset[1]))
        for line, text in enumerate(_wrap(labels[index], font, cell_width) if labels else ()):
            draw.text((left, top + cell_height + 2 + line * _LABEL_LINE), text, _INK, font)
    with _whole_file(path) as temporary:
        sheet.save(temporary, format="PNG")


def read_reference(
    path: Path, *, width: int, height: int, field: str = "references"
) -> Image.Image:
    """Read an image file for conditioning: upright, RGB, cut to the aspect and size asked for.

    Cutting the sides keeps the proportions, where the pipelines would stretch.
    """
    upright = _open_picture(path, field=field)
    return ImageOps.fit(upright, (width, height), Image.Resampling.LANCZOS)


def read_mask(path: Path, *, width: int, height: int) -> Image.Image:
    """Read a mask cut as its picture is cut: grey, white where something is painted."""
    upright = _open_picture(path, field="mask").convert("L")
    return ImageOps.fit(upright, (width, height), Image.Resampling.LANCZOS)


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Read an image file as it is, upright: RGB of shape (H, W, 3)."""
    return np.asarray(_open_picture(path, field="pictures"))


def _open_picture(path: Path, *, field: str) -> Image.Image:
    try:
        with Image.open(path) as image:
            if max(image.size) > MAX_PICTURE_SIDE:
                raise InvalidRequest(
                    field,
                    f"{path} has {image.width} x {image.height} pixels; a side may have"
                    f" {MAX_PICTURE_SIDE} at most.",
                )
            if getattr(image, "is_animated", False):
                raise InvalidRequest(field, f"{path} is an animation; give a still picture.")
            return ImageOps.exif_transpose(image).convert("RGB")
    except FileNotFoundError:
        raise InvalidRequest(field, f"The image {path} is missing.") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InvalidRequest(field, f"{path} is not a readable image ({error}).") from None


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; moved to `path` when all went well, else removed."""
    temporary = path.with_name(f".{uuid.uuid4().hex}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        # FFmpeg's errors are OSErrors too and carry the same numbers.
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(path) from None
        raise MediaError(path, f"cannot be written ({error.strerror or error}).") from error
    finally:
        temporary.unlink(missing_ok=True)


def _check_frames(frames: Frames) -> None:
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or not len(frames):
        raise InvalidRequest(
            "frames",
            f"Frames are uint8 (F, H, W, 3) with F >= 1, not {frames.dtype} {frames.shape}.",
        )


def _wrap(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> list[str]:
    """Break a label into at most two lines of `width` pixels."""
    lines = [""]
    for word in _drawable(text).split():
        longer = f"{lines[-1]} {word}".strip()
        if not lines[-1] or font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > 2:
        lines = [lines[0], " ".join(lines[1:])]
    return [_cut(line, font, width) for line in lines]


def _drawable(text: str) -> str:
    """The label without accents, `?` for letters of other scripts: the font has no more."""
    letters = unicodedata.normalize("NFKD", text.translate(_SPELLINGS))
    return "".join(
        letter if letter.isascii() or letter in _DRAWABLE else "?"
        for letter in letters
        if not unicodedata.combining(letter)
    )


def _cut(line: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    if font.getlength(line) <= width:
        return line
    while line and font.getlength(line + "…") > width:
        line = line[:-1]
    return line.rstrip() + "…"
