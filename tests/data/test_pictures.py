import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cfcl.data import pictures
from cfcl.errors import CfclError


def save(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


def values(path: Path, *, grey: bool = False) -> list[int]:
    return [int(value) for value in np.unique(pictures.read(path, grey=grey, size=None))]


def palette() -> Image.Image:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([9, 9, 9, 8, 8, 8])
    return image


# Black or dark, but wholly transparent: on white all of it is white.
CLEAR: dict[str, Callable[[Path], Path]] = {
    "RGBA": lambda p: save(p / "a.png", Image.new("RGBA", (4, 4), (0, 0, 0, 0))),
    "RGBA webp": lambda p: save(p / "a.webp", Image.new("RGBA", (4, 4), (0, 0, 0, 0)), lossless=True),
    "LA": lambda p: save(p / "a.png", Image.new("LA", (4, 4), (0, 0))),
    "palette, one colour": lambda p: save(p / "a.png", palette(), transparency=1),
    "palette, shares": lambda p: save(p / "a.png", palette(), transparency=bytes([255, 0])),
    "palette gif": lambda p: save(p / "a.gif", palette(), transparency=1),
    "grey, one value": lambda p: save(p / "a.png", Image.new("L", (4, 4), 7), transparency=7),
    "bits, one value": lambda p: save(p / "a.png", Image.new("1", (4, 4), 0), transparency=0),
    "RGB, one colour": lambda p: save(p / "a.png", Image.new("RGB", (4, 4), (1, 2, 3)), transparency=(1, 2, 3)),
    "16 bits, one value": lambda p: save(p / "a.png", deep([256] * 4), transparency=256),
}


def deep(row: list[int]) -> Image.Image:
    return Image.fromarray(np.array([row], dtype=np.uint16))


@pytest.mark.parametrize("kind", CLEAR)
def test_what_is_transparent_is_white(tmp_path: Path, kind: str) -> None:
    path = CLEAR[kind](tmp_path)
    assert values(path) == [255]
    assert values(path, grey=True) == [255]


@pytest.mark.parametrize("mode", ["PA", "La", "RGBa"])
def test_modes_that_no_file_has_are_put_on_white_too(mode: str) -> None:
    start = Image.new("LA" if mode == "La" else "RGBA", (4, 4))
    assert np.unique(np.asarray(pictures.plain(start.convert(mode)))).tolist() == [255]


def test_half_transparent_black_is_grey(tmp_path: Path) -> None:
    # 0 * 128/255 + 255 * 127/255 = 127
    assert values(save(tmp_path / "a.png", Image.new("RGBA", (4, 4), (0, 0, 0, 128)))) == [127]


def test_deep_pixels_are_scaled(tmp_path: Path) -> None:
    # 65,535 is 255 * 257; 257 is 1; 30,000 / 257 = 116.7
    assert values(save(tmp_path / "a.png", deep([0, 257, 30_000, 65_535]))) == [0, 1, 117, 255]
    assert values(save(tmp_path / "a.tif", deep([0, 257, 30_000, 65_535]))) == [0, 1, 117, 255]
    floats = Image.fromarray(np.array([[0.0, 0.2, 1.0]], dtype=np.float32))
    assert values(save(tmp_path / "b.tif", floats)) == [0, 51, 255]


def test_a_look_says_size_and_colour_without_decoding(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    assert pictures.look(save(tmp_path / "a.jpg", Image.new("RGB", (6, 4)), exif=exif)) == (6, 4, False)
    assert pictures.look(save(tmp_path / "b.png", Image.new("RGB", (6, 4)))) == (4, 6, False)
    assert pictures.look(save(tmp_path / "c.png", Image.new("LA", (6, 4)))) == (4, 6, True)
    assert pictures.look(save(tmp_path / "d.png", deep([1, 2]))) == (1, 2, True)
    assert pictures.look(cut(tmp_path, "e.png")) == (64, 64, False)  # half of its pixels are gone


def test_a_large_jpeg_is_shrunk_to_about_what_it_shows(tmp_path: Path) -> None:
    left = np.zeros((400, 400, 3), dtype=np.uint8)
    left[:, :200] = 200
    pixels = pictures.read(save(tmp_path / "a.jpg", Image.fromarray(left), quality=95), grey=True, size=(4, 4))
    assert pixels.shape == (1, 4, 4)
    # a triangle as wide as two pixels: one eighth of it lies beyond the edge
    assert np.abs(pixels[0].astype(int) - [200, 175, 25, 0]).max() <= 3


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def postscript(path: Path) -> Path:
    save(path / "a.eps", Image.new("RGB", (4, 4)))
    return Path(shutil.copy(path / "a.eps", path / "b.png"))


def circle(path: Path) -> Path:
    (path / "b.png").symlink_to(path / "b.png")
    return path / "b.png"


def cut(path: Path, name: str) -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = save(path / name, Image.fromarray(noise)).read_bytes()
    return written(path / name, data[: len(data) // 2])


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "postscript by another name": (postscript, "cannot identify image file"),
    "empty": (lambda p: written(p / "b.png", b""), "cannot identify"),
    "text": (lambda p: written(p / "b.png", b"hello"), "cannot identify"),
    "cut": (lambda p: cut(p, "b.png"), "truncated"),
    "cut jpeg": (lambda p: cut(p, "b.jpg"), "truncated"),
    "gone": (lambda p: p / "b.png", "No such file"),
    "a link to itself": (circle, "symbolic links"),
    "no pixels": (lambda p: written(p / "b.png", png(0, 1)), "cannot identify"),
    "2,500 megapixels": (lambda p: written(p / "b.png", png(50_000, 50_000)), "2500000000 pixels"),
    "120 megapixels": (lambda p: written(p / "b.png", png(12_000, 10_000)), "12,000×10,000 pixels are more than"),
    "32 bits": (lambda p: save(p / "b.tif", Image.new("I", (4, 4))), "mode I are neither 8 nor 16 bits"),
    "floats above 1": (lambda p: save(p / "b.tif", Image.new("F", (4, 4), 2.0)), "nor floats in 0..1"),
    "floats that are none": (lambda p: save(p / "b.tif", Image.new("F", (4, 4), float("nan"))), "nor floats in 0..1"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_is_no_picture_gets_one_line(tmp_path: Path, kind: str) -> None:
    cause, reason = BAD[kind]
    path = cause(tmp_path)
    with pytest.raises(CfclError) as caught, pictures.quietly():
        pictures.read(path, grey=False, size=None)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{path} is not a readable image (")
    assert reason in line
    assert line.endswith("): convert, replace or remove it")


def test_only_the_decoders_of_pictures_are_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("Ghostscript would have been started")

    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", never)
    with pytest.raises(CfclError, match="cannot identify"):
        pictures.read(postscript(tmp_path), grey=False, size=None)
