"""Picture files as bytes: a few formats, decoded within limits, without transparency, 8 bits a channel."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from cfcl.errors import CfclError

Pixels = NDArray[np.uint8]
Size = tuple[int, int]
"""Height and width."""

# Only these decoders are tried, whatever a file is called: some others of Pillow start programs or fetch things.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
MAX_PIXELS = 100_000_000
"""Pixels of a picture, at most: as colour they take 300 MB while it is decoded."""
GREY = ("1", "L", "LA", "La", "F")
ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
ORIENTATION = 0x0112


class Look(NamedTuple):
    """What the head of a file says."""

    height: int
    width: int
    grey: bool


def quietly() -> AbstractContextManager[object]:
    """While pictures are read: Pillow warns of much that is odd and harmless. Not in threads, which share warnings."""
    return warnings.catch_warnings(action="ignore")


def look(path: Path) -> Look:
    """Size, as the camera was held, and whether it has no colour, without decoding it."""
    with _opened(path) as file:
        width, height = file.size
        turned = Image.Image.getexif(file).get(ORIENTATION) in (5, 6, 7, 8)  # a PNG's own method would decode it all
        grey = file.mode in GREY or file.mode.startswith("I")
        return Look(width, height, grey) if turned else Look(height, width, grey)


def read(path: Path, *, grey: bool, size: Size | None) -> Pixels:
    """The picture as [channels, height, width], of `size` if given."""
    return fitted(opened(path, size).convert("L" if grey else "RGB"), size)


def opened(path: Path, size: Size | None = None) -> Image.Image:
    """The picture in mode L or RGB, as the camera was held; if it is for `size`, perhaps smaller than it is."""
    with _opened(path) as file:
        if size is not None:
            side = 2 * max(size)
            file.draft(None, (side, side))  # a JPEG is decoded no larger than it takes to shrink it well
        return plain(ImageOps.exif_transpose(file))


def fitted(image: Image.Image, size: Size | None) -> Pixels:
    """An image of mode L or RGB as [channels, height, width], of `size` if given, whatever its aspect was."""
    if size is not None:
        height, width = size
        # Pillow widens the filter when it shrinks an image: antialiased.
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels: Pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def plain(image: Image.Image) -> Image.Image:
    """The image in mode L or RGB: what is transparent on white, 16 bits and floats in 0..1 scaled to 8 bits."""
    if image.mode == "F" or image.mode.startswith("I"):
        return _shallow(image)
    mode = "L" if image.mode in GREY else "RGB"
    if image.mode in ALPHA or "transparency" in image.info:
        image = image.convert("LA") if image.mode == "La" else image
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image.convert("RGBA"))
        image = white
    return image.convert(mode)


def _shallow(image: Image.Image) -> Image.Image:
    """An image of more than 8 bits, in mode L."""
    deep = np.asarray(image)
    if image.mode.startswith("I;16"):
        values = deep / 257.0  # 65,535 is 255 × 257
    elif image.mode == "F" and bool(((deep >= 0) & (deep <= 1)).all()):
        values = deep * 255.0
    else:
        raise ValueError(f"pixels of mode {image.mode} are neither 8 nor 16 bits nor floats in 0..1")
    values[deep == image.info.get("transparency")] = 255
    return Image.fromarray(values.round().astype(np.uint8))


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """The file, its head read; whatever is wrong with it, now or when it is decoded, becomes one line."""
    try:
        with Image.open(path, formats=FORMATS) as file:
            if file.width * file.height > MAX_PIXELS:
                raise ValueError(f"{file.width:,}×{file.height:,} pixels are more than {MAX_PIXELS:,}")
            yield file
    except Exception as error:  # its decoders fail in many ways on damaged bytes
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise CfclError(f"{path} is not a readable image ({reason}): convert, replace or remove it") from None
