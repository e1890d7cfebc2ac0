"""A split of a dataset as a folder of pictures, for whatever takes pictures."""

import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from torch import Tensor

from cfcl import reading
from cfcl.data.splits import Dataset
from cfcl.errors import CfclError

LABELS = "labels.csv"


def save(dataset: Dataset, split: str, out: Path, *, watch: Callable[[int], None] = lambda done: None) -> int:
    """Write each image of the split `train` or `test` as a PNG file to the new folder `out`, and their labels, if any,
    to a table there; comes back with how many. The folder is there when all of it is.
    """
    images, labels = (
        (dataset.train_images, dataset.train_labels) if split == "train" else (dataset.test_images, dataset.test_labels)
    )
    if reading.exists(out):
        raise CfclError(f"{str(out)!r} exists already: give another --out, or remove it")
    part = out.with_name(f".{secrets.token_hex(8)}.part")
    try:
        part.mkdir(parents=True)
        names = [f"{place:0{len(str(len(images) - 1))}}.png" for place in range(len(images))]
        for place, (name, image) in enumerate(zip(names, images, strict=True)):
            picture(image).save(part / name)
            watch(place + 1)
        if labels is not None:
            words = [dataset.classes[label] if dataset.classes else str(label) for label in labels.tolist()]
            rows = [f"{name},{_quoted(word)}\n" for name, word in zip(names, words, strict=True)]
            (part / LABELS).write_text("name,label\n" + "".join(rows), encoding="utf-8")
        part.rename(out)
    except OSError as error:
        raise CfclError(f"cannot write {str(out)!r} ({error.strerror or error}): choose another --out") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return len(images)


def picture(image: Tensor) -> Image.Image:
    """An image [channels, height, width] of bytes, for people."""
    pixels = image[0] if len(image) == 1 else image.permute(1, 2, 0)
    return Image.fromarray(pixels.contiguous().numpy())


def _quoted(word: str) -> str:
    special = any(letter in word for letter in ',"\n\r')
    return '"' + word.replace('"', '""') + '"' if special else word
