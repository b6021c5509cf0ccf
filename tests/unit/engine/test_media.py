"""Files that players accept: exact frames, constant rate, right colours, whole or not there."""

from __future__ import annotations

import errno
import shutil
import struct
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc
from numpy.typing import NDArray
from PIL import Image

from engine.errors import DiskFull, InvalidRequest, MediaError
from engine.media import (
    contact_sheet,
    encode_video,
    read_reference,
    write_image,
    write_poster,
    write_preview,
)
from engine.types import Audio


def _scene(count: int, height: int = 128, width: int = 224) -> NDArray[np.uint8]:
    """A red disc that moves over a blue gradient."""
    rows, columns = np.mgrid[0:height, 0:width]
    frames = np.zeros((count, height, width, 3), np.uint8)
    frames[..., 2] = 80 + 150 * rows // height
    for index, frame in enumerate(frames):
        inside = (rows - height / 2) ** 2 + (columns - 30 - 5 * index) ** 2 < 20**2
        frame[inside] = (220, 40, 30)
    return frames


def _decode(path: Path) -> NDArray[np.uint8]:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def _boxes(path: Path) -> list[bytes]:
    """The names of an MP4's top-level boxes, in file order."""
    data, names, position = path.read_bytes(), [], 0
    while position < len(data):
        size, name = struct.unpack(">I4s", data[position : position + 8])
        names.append(name)
        position += size
    return names


@pytest.mark.parametrize(("count", "fps"), [(17, 12), (5, 24), (1, 16), (33, 7)])
def test_a_video_has_exactly_its_frames_at_its_rate(tmp_path: Path, count: int, fps: int) -> None:
    path = tmp_path / "clip.mp4"
    encode_video(_scene(count), fps, path)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        times = [frame.pts * stream.time_base for frame in container.decode(stream)]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert (stream.width, stream.height) == (224, 128)
        assert stream.frames == count
        assert stream.average_rate == fps
        assert stream.duration * stream.time_base == Fraction(count, fps)
    assert times == [Fraction(index, fps) for index in range(count)]


def test_a_video_starts_with_its_index(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    encode_video(_scene(17), 12, path)
    boxes = _boxes(path)
    assert boxes.index(b"moov") < boxes.index(b"mdat")


def test_a_video_says_its_colours_and_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    patches = [(220, 40, 30), (30, 180, 60), (40, 70, 210), (250, 250, 250), (10, 10, 10)]
    frames = np.zeros((5, 64, 160, 3), np.uint8)
    for index, colour in enumerate(patches):
        frames[:, :, 32 * index : 32 * (index + 1)] = colour
    encode_video(frames, 12, path)
    with av.open(str(path)) as container:
        codec = container.streams.video[0].codec_context
        assert codec.colorspace == Colorspace.ITU709
        assert codec.color_primaries == ColorPrimaries.BT709
        assert codec.color_trc == ColorTrc.BT709
        assert codec.color_range == ColorRange.MPEG
        picture = next(container.decode(video=0))
        planes = picture.to_ndarray(format="yuv420p")
    # Luma by the definition of BT.709 in limited range (ITU-R BT.709-6, items 3.2 and 3.4).
    for index, (red, green, blue) in enumerate(patches):
        luma = 16 + 219 / 255 * (0.2126 * red + 0.7152 * green + 0.0722 * blue)
        assert planes[32, 32 * index + 16] == pytest.approx(luma, abs=2)


def test_a_video_looks_like_its_frames(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    # Grey noise of large grain: luma only, which 4:2:0 keeps at full size.
    grain = np.random.default_rng(0).integers(40, 220, (9, 16, 28), dtype=np.uint8)
    frames = np.repeat(grain.repeat(8, axis=1).repeat(8, axis=2)[..., None], 3, axis=3)
    encode_video(frames, 12, path)
    error = np.mean((_decode(path).astype(float) - frames) ** 2)
    assert 10 * np.log10(255**2 / error) > 40


def test_equal_frames_give_equal_files(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    files = set()
    for _ in range(20):
        encode_video(_scene(9), 12, path)
        files.add(path.read_bytes())
    assert len(files) == 1


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((3, 127, 224, 3), np.uint8),
        np.zeros((3, 128, 223, 3), np.uint8),
        np.zeros((0, 128, 224, 3), np.uint8),
        np.zeros((3, 128, 224, 4), np.uint8),
        np.zeros((128, 224, 3), np.uint8),
        np.zeros((3, 128, 224, 3), np.float32),
    ],
    ids=["odd height", "odd width", "no frames", "alpha", "one picture", "floats"],
)
def test_frames_that_no_video_can_hold_are_refused(
    tmp_path: Path, frames: NDArray[np.uint8]
) -> None:
    with pytest.raises(InvalidRequest):
        encode_video(frames, 12, tmp_path / "clip.mp4")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="No such file or directory"):
        encode_video(_scene(3), 12, tmp_path / "nowhere" / "clip.mp4")


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 8 KiB."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_said_and_nothing_is_left(full_disk: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (17, 128, 224, 3), dtype=np.uint8)
    with pytest.raises(DiskFull, match=r"clip\.mp4: no space left"):
        encode_video(noise, 12, full_disk / "clip.mp4")
    with pytest.raises(DiskFull, match=r"still\.png: no space left"):
        write_image(noise[:1], full_disk / "still.png")
    assert list(full_disk.iterdir()) == []


def test_a_failed_write_keeps_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "poster.jpg"
    write_poster(_scene(3), path)
    before = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(DiskFull):
        write_poster(_scene(5), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("suffix", "kind"), [(".jpg", "JPEG"), (".webp", "WEBP")])
def test_a_poster_is_the_middle_frame(tmp_path: Path, suffix: str, kind: str) -> None:
    frames = _scene(17)
    path = tmp_path / f"poster{suffix}"
    write_poster(frames, path)
    with Image.open(path) as image:
        assert (image.format, image.size) == (kind, (224, 128))
        pixels = np.asarray(image.convert("RGB")).astype(float)
    errors = [np.abs(pixels - frame).mean() for frame in frames]
    assert int(np.argmin(errors)) == 8


def test_a_poster_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"\.jpg or \.webp"):
        write_poster(_scene(1), tmp_path / "poster.gif")


def test_a_preview_loops_and_is_small(tmp_path: Path) -> None:
    path = tmp_path / "preview.webp"
    write_preview(_scene(121, 352, 640), 24, path)
    with Image.open(path) as image:
        assert image.format == "WEBP"
        assert image.size == (256, 141)
        assert image.n_frames == 36
        assert image.info["loop"] == 0
        image.seek(1)
        image.load()
        assert image.info["duration"] == 83
    assert path.stat().st_size < 200_000


def test_a_preview_of_a_small_clip_keeps_size_and_rate(tmp_path: Path) -> None:
    path = tmp_path / "preview.webp"
    write_preview(_scene(17), 12, path)
    with Image.open(path) as image:
        assert (image.size, image.n_frames) == ((224, 128), 17)


def test_a_still_is_lossless(tmp_path: Path) -> None:
    path = tmp_path / "still.png"
    frames = _scene(1)
    write_image(frames, path)
    with Image.open(path) as image:
        np.testing.assert_array_equal(np.asarray(image), frames[0])
    with pytest.raises(InvalidRequest, match="not 3"):
        write_image(_scene(3), path)


def test_a_contact_sheet_shows_each_picture_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "sheet.png"
    tiles = [np.full((100, 150, 3), shade, np.uint8) for shade in (40, 80, 120, 160, 200)]
    contact_sheet(tiles, path, columns=3)
    with Image.open(path) as image:
        assert image.size == (12 + 3 * 162, 12 + 2 * 112)
        sheet = np.asarray(image)
    for index, tile in enumerate(tiles):
        row, column = divmod(index, 3)
        top, left = 12 + row * 112, 12 + column * 162
        np.testing.assert_array_equal(sheet[top : top + 100, left : left + 150], tile)


def test_labels_stand_below_their_pictures_and_fit(tmp_path: Path) -> None:
    tiles = [np.full((60, 100, 3), 90, np.uint8)] * 2
    contact_sheet(tiles, tmp_path / "plain.png", columns=2, labels=["", ""])
    label = "Rio de Janeiro, a sandy beach, young runners, golden hour, extraordinarily long"
    contact_sheet(tiles, tmp_path / "labelled.png", columns=2, labels=[label, ""])
    plain = np.asarray(Image.open(tmp_path / "plain.png")).astype(int)
    labelled = np.asarray(Image.open(tmp_path / "labelled.png")).astype(int)
    rows, columns = np.nonzero(np.abs(plain - labelled).sum(axis=2))
    assert rows.min() >= 12 + 60
    assert columns.min() >= 12
    assert columns.max() < 12 + 100


@pytest.mark.parametrize(
    ("label", "drawn"),
    [("São Paulo – größer", "Sao Paulo - grosser"), ("東京 · “Łódź”", "?? · “Lodz”")],
)
def test_a_label_uses_only_letters_that_the_font_has(
    tmp_path: Path, label: str, drawn: str
) -> None:
    tiles = [np.full((60, 200, 3), 90, np.uint8)]
    contact_sheet(tiles, tmp_path / "label.png", columns=1, labels=[label])
    contact_sheet(tiles, tmp_path / "drawn.png", columns=1, labels=[drawn])
    assert (tmp_path / "label.png").read_bytes() == (tmp_path / "drawn.png").read_bytes()


@pytest.mark.parametrize(
    ("count", "columns", "labels"), [(0, 2, []), (2, 0, []), (2, 2, ["only one"])]
)
def test_a_contact_sheet_that_makes_no_sense_is_refused(
    tmp_path: Path, count: int, columns: int, labels: list[str]
) -> None:
    tiles = [np.zeros((4, 4, 3), np.uint8)] * count
    with pytest.raises(InvalidRequest):
        contact_sheet(tiles, tmp_path / "sheet.png", columns=columns, labels=labels)


def test_a_reference_is_cut_not_stretched(tmp_path: Path) -> None:
    pixels = np.zeros((200, 600, 3), np.uint8)
    pixels[:, 190:410] = 255
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    square = np.asarray(read_reference(tmp_path / "wide.png", width=100, height=100))
    assert square.min() == 255


def test_a_reference_of_the_right_size_is_untouched(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (128, 224, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "first.png")
    image = read_reference(tmp_path / "first.png", width=224, height=128)
    np.testing.assert_array_equal(np.asarray(image), pixels)


def test_a_photo_taken_sideways_is_turned_upright(tmp_path: Path) -> None:
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees clockwise to view
    Image.fromarray(pixels).save(tmp_path / "photo.png", exif=exif)
    upright = np.asarray(read_reference(tmp_path / "photo.png", width=20, height=40))
    assert upright[:18].min() > 200
    assert upright[22:].max() < 55


@pytest.mark.parametrize("data", [b"", b"not an image", b"\x89PNG\r\n\x1a\n broken"])
def test_a_file_that_is_no_image_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "broken.png"
    path.write_bytes(data)
    with pytest.raises(InvalidRequest, match=r"broken\.png"):
        read_reference(path, width=224, height=128)


def test_a_missing_reference_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"nowhere\.png is missing"):
        read_reference(tmp_path / "nowhere.png", width=224, height=128)


@pytest.mark.parametrize("channels", [1, 2])
def test_sound_is_muxed_beside_the_pictures(tmp_path: Path, channels: int) -> None:
    rate, seconds = 24_000, 0.5
    time = np.arange(int(rate * seconds)) / rate
    wave = (0.5 * np.sin(2 * np.pi * 440 * time)).astype(np.float32)
    audio = Audio(samples=np.stack([wave] * channels, axis=1), rate=rate)
    frames = np.zeros((12, 32, 32, 3), dtype=np.uint8)
    encode_video(frames, 24, tmp_path / "clip.mp4", audio=audio)
    with av.open(str(tmp_path / "clip.mp4")) as container:
        assert [stream.type for stream in container.streams] == ["video", "audio"]
        stream = container.streams.audio[0]
        assert (stream.codec_context.name, stream.rate, stream.channels) == ("aac", rate, channels)
        heard = np.concatenate([each.to_ndarray()[0] for each in container.decode(audio=0)])
    # AAC puts a run-in of one or two packets in front.
    assert len(time) <= len(heard) <= len(time) + 4096
    spectrum = np.abs(np.fft.rfft(heard))
    assert abs(np.fft.rfftfreq(len(heard), 1 / rate)[spectrum.argmax()] - 440) < 5


def test_sound_of_no_known_form_is_refused(tmp_path: Path) -> None:
    audio = Audio(samples=np.zeros((10, 6), dtype=np.float32), rate=24_000)
    with pytest.raises(InvalidRequest, match=r"not \(10, 6\)"):
        encode_video(np.zeros((2, 32, 32, 3), np.uint8), 24, tmp_path / "clip.mp4", audio=audio)
    assert not list(tmp_path.iterdir())


def test_a_reference_must_be_a_still_picture_of_sensible_size(tmp_path: Path) -> None:
    stills = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    stills[0].save(tmp_path / "moving.gif", save_all=True, append_images=stills[1:])
    Image.new("L", (20_000, 2)).save(tmp_path / "wide.png")
    (tmp_path / "words.png").write_text("this is no picture")
    whole = tmp_path / "whole.png"
    Image.effect_noise((64, 64), 50).save(whole)
    (tmp_path / "cut.png").write_bytes(whole.read_bytes()[:1000])
    for name, message in (
        ("moving.gif", "is an animation"),
        ("wide.png", "20000 x 2 pixels"),
        ("words.png", "not a readable image"),
        ("cut.png", "not a readable image"),
        ("none.png", "is missing"),
    ):
        with pytest.raises(InvalidRequest, match=message) as caught:
            read_reference(tmp_path / name, width=32, height=32)
        assert caught.value.field == "references"
