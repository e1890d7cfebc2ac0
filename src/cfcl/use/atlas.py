"""Many thumbnails in a few pictures, as a page draws them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

from PIL import Image

PIXELS = 2**23
"""Of all thumbnails together, at most: two or three megabytes of photographs."""
LARGEST = 128
"""Pixels of a thumbnail's longer side, however few there are."""
PAGE = 2048
"""Pixels of a side of a picture, at most: any telephone can draw these."""
PIXEL_ART = 32
"""Pixels of the longer side of images that are drawn with hard edges, and kept without loss."""
BLOCK = 8
"""Pixels that JPEG treats as one: thumbnails that share none do not stain each other, if colours are not blurred."""
QUALITY = 82


@dataclass(frozen=True)
class Atlas:
    """Thumbnails side by side, row by row, in square cells."""

    kind: Literal["png", "jpeg"]
    pages: list[bytes]
    cell: int
    """Pixels of a cell's side."""
    columns: int
    rows: int
    """Cells of a page; the last one may be lower."""
    sizes: list[tuple[int, int]]
    """Width and height of each thumbnail, which lies in the upper left corner of its cell."""


def side(number: int) -> int:
    """Pixels of a thumbnail's longer side, if there are so many."""
    return min(LARGEST, math.isqrt(PIXELS // number))


def pack(thumbnails: Sequence[Image.Image]) -> Atlas:
    """The thumbnails in as few pictures as it takes."""
    longest = max(max(image.size) for image in thumbnails)
    kind: Literal["png", "jpeg"] = "png" if longest <= PIXEL_ART else "jpeg"
    cell = longest if kind == "png" else -(-longest // BLOCK) * BLOCK
    columns = min(PAGE // cell, math.isqrt(len(thumbnails) - 1) + 1)
    rows = PAGE // cell
    mode = "L" if all(image.mode == "L" for image in thumbnails) else "RGB"
    pages = [
        _page(thumbnails[start : start + columns * rows], columns, cell, mode, kind)
        for start in range(0, len(thumbnails), columns * rows)
    ]
    return Atlas(kind, pages, cell, columns, rows, [image.size for image in thumbnails])


def _page(thumbnails: Sequence[Image.Image], columns: int, cell: int, mode: str, kind: str) -> bytes:
    picture = Image.new(mode, (columns * cell, -(-len(thumbnails) // columns) * cell))
    for number, image in enumerate(thumbnails):
        row, column = divmod(number, columns)
        picture.paste(image.convert(mode), (column * cell, row * cell))
    picture.save(content := BytesIO(), format=kind, quality=QUALITY, subsampling=0, optimize=True)
    return content.getvalue()
