"""Contact sheets: rows of small images, with titles at the left and words below."""

from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import matplotlib
import torch
from PIL import Image, ImageDraw, ImageFont

from cfcl.data import saving
from cfcl.data.splits import Dataset
from cfcl.shown import visible

SIDE, WORDED_SIDE = 56, 96
"""Pixels of an image's longer side on the sheet, at least: without and with words below it."""
LARGEST = 192
"""Pixels of an image's longer side on the sheet, at most."""
GAP = 4
MARGIN = 36
"""Pixels for titles on the left, at least; longer ones get what they need, up to LARGEST."""
LINE = 15
"""Pixels of a line of words."""
TEXT, QUIET, FRAME = "#1b1f24", "#5b6470", "#0072B2"
COLUMNS, MAX_ROWS = 10, 20
"""Images of a row, and rows, of the sheet of a dataset."""


class Cell(NamedTuple):
    """An image, and lines of words below it, which are shortened where they do not fit."""

    image: Image.Image
    words: tuple[str, ...] = ()


class Row(NamedTuple):
    """Images beside each other."""

    title: str
    cells: Sequence[Cell]
    lead: Cell | None = None
    """An image that stands apart before the others."""


def sheet(rows: Sequence[Row]) -> Image.Image:
    """The rows below each other, all columns of one width."""
    cells = [cell for row in rows for cell in _all(row)]
    side = WORDED_SIDE if any(cell.words for cell in cells) else SIDE
    drawn = [[enlarged(shrunk(cell.image), side) for cell in _all(row)] for row in rows]
    width = max([image.width for images in drawn for image in images] + ([side] if side == WORDED_SIDE else []))
    heights = [max((image.height for image in images), default=0) for images in drawn]
    lines = [max((len(cell.words) for cell in _all(row)), default=0) for row in rows]
    margin, apart = _margin(rows), 3 * GAP if any(row.lead for row in rows) else 0
    most = max(len(images) for images in drawn)
    step = [height + GAP + (LINE * count + GAP if count else 0) for height, count in zip(heights, lines, strict=True)]
    picture = Image.new("RGB", (margin + apart + most * (width + GAP), GAP + sum(step)), "white")
    pen, top = ImageDraw.Draw(picture), GAP
    for row, images, height, down in zip(rows, drawn, heights, step, strict=True):
        pen.text((GAP, top + height // 2), _short(row.title, margin - 2 * GAP), TEXT, font(), anchor="lm")
        for column, (cell, image) in enumerate(zip(_all(row), images, strict=True)):
            left = margin + column * (width + GAP) + (apart if not row.lead or column else 0)
            _paste(picture, pen, cell, image, (left, top), (width, height), framed=bool(row.lead) and not column)
        top += down
    return picture


def shrunk(image: Image.Image, largest: int = LARGEST) -> Image.Image:
    """The image, antialiased, so that no side is longer than `largest`; as it is if it fits."""
    longest = max(image.size)
    if longest <= largest:
        return image
    width, height = (max(1, round(length * largest / longest)) for length in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS)


def enlarged(image: Image.Image, side: int) -> Image.Image:
    """The image, larger by the whole factor that makes its longer side `side` or more; its pixels are kept."""
    factor = -(-side // max(image.size))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def png(picture: Image.Image) -> bytes:
    """The content of its file."""
    picture.save(content := BytesIO(), format="PNG")
    return content.getvalue()


def of_dataset(dataset: Dataset) -> list[Row]:
    """One row per label, or rows of the first images where there are no labels."""
    labels = dataset.train_labels
    if labels is None:
        chosen = torch.arange(min(len(dataset.train_images), COLUMNS * COLUMNS))
        parts = [("", part) for part in torch.split(chosen, COLUMNS)]
    else:
        known = torch.unique(labels)[:MAX_ROWS].tolist()
        parts = [(str(label), (labels == label).nonzero().squeeze(1)[:COLUMNS]) for label in known]
    return [Row(title, [Cell(saving.picture(image)) for image in dataset.train_images[part]]) for title, part in parts]


@lru_cache(maxsize=1)
def font() -> ImageFont.FreeTypeFont:
    """The letters of all sheets; matplotlib brings them, so that they look the same everywhere."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", 11)


def _all(row: Row) -> list[Cell]:
    return [*([row.lead] if row.lead else []), *row.cells]


def _margin(rows: Sequence[Row]) -> int:
    widest = max(font().getlength(visible(row.title[:LARGEST])) for row in rows)
    return min(LARGEST, max(MARGIN, round(widest) + 3 * GAP)) if widest else GAP


def _paste(
    picture: Image.Image,
    pen: ImageDraw.ImageDraw,
    cell: Cell,
    image: Image.Image,
    corner: tuple[int, int],
    box: tuple[int, int],
    *,
    framed: bool,
) -> None:
    """An image on the floor of its box, in the middle if there are words, and these below it."""
    (left, top), (width, height) = corner, box
    x, y = left + (width - image.width) // 2, top + height - image.height
    picture.paste(image, (x, y))
    if framed:
        pen.rectangle((x - 2, y - 2, x + image.width + 1, y + image.height + 1), outline=FRAME, width=2)
    for number, words in enumerate(cell.words):
        place = (left + width // 2, top + height + GAP + number * LINE + LINE // 2)
        pen.text(place, _short(words, width), QUIET if number else TEXT, font(), anchor="mm")


def _short(words: str, width: int) -> str:
    """As much of both ends of `words` as fits."""
    words = visible(words)
    for kept in range(min(len(words), width // 3), 0, -1):  # a letter takes three pixels or more
        found = words if kept == len(words) else f"{words[: kept // 2]}…{words[len(words) - (kept + 1) // 2 :]}"
        if font().getlength(found) <= width:
            return found
    return ""
