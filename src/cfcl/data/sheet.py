"""A contact sheet: what the images of a dataset look like."""

from io import BytesIO
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from cfcl import reading
from cfcl.data.splits import Dataset
from cfcl.errors import CfclError
from cfcl.files import write_atomically

COLUMNS = 10
MAX_ROWS = 20
SIDE = 56
"""Pixels of an image's longer side on the sheet, at least."""
GAP = 4
MARGIN = 36
"""Pixels for the label on the left."""


def write(dataset: Dataset, out: Path, *, force: bool = False) -> Path:
    """A PNG with one row per label, or rows of the first images where there are no labels."""
    if reading.exists(out) and not force:
        raise CfclError(f"{str(out)!r} exists already: give --force to replace it, or another --out")
    picture = draw(dataset)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        picture.save(content := BytesIO(), format="PNG")
        write_atomically(out, content.getvalue())
    except OSError as error:
        raise CfclError(f"cannot write {str(out)!r}: {error.strerror or error}; choose another --out") from None
    return out


def draw(dataset: Dataset) -> Image.Image:
    """The sheet as a picture."""
    rows = _rows(dataset)
    _, height, width = dataset.image_shape
    scale = max(1, -(-SIDE // max(height, width)))
    step_x, step_y = width * scale + GAP, height * scale + GAP
    margin = MARGIN if dataset.train_labels is not None else GAP
    sheet = Image.new("RGB", (margin + COLUMNS * step_x, GAP + len(rows) * step_y), "white")
    pen = ImageDraw.Draw(sheet)
    for row, (title, chosen) in enumerate(rows):
        top = GAP + row * step_y
        pen.text((GAP, top + height * scale // 2 - 5), title, fill="black")
        for column, image in enumerate(dataset.train_images[chosen]):
            picture = _picture(image).resize((width * scale, height * scale), Image.Resampling.NEAREST)
            sheet.paste(picture, (margin + column * step_x, top))
    return sheet


def _rows(dataset: Dataset) -> list[tuple[str, Tensor]]:
    """The title of each row and which training images stand in it."""
    labels = dataset.train_labels
    if labels is None:
        chosen = torch.arange(min(len(dataset.train_images), COLUMNS * COLUMNS))
        return [("", part) for part in torch.split(chosen, COLUMNS)]
    shown = torch.unique(labels)[:MAX_ROWS].tolist()
    return [(str(label), (labels == label).nonzero().squeeze(1)[:COLUMNS]) for label in shown]


def _picture(image: Tensor) -> Image.Image:
    pixels = image[0] if len(image) == 1 else image.permute(1, 2, 0)
    return Image.fromarray(pixels.contiguous().numpy())
