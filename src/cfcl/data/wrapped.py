"""Any `torch.utils.data.Dataset` as a dataset of ours."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from cfcl.data.splits import Dataset, divide
from cfcl.errors import CfclError


def from_torch(
    train: "TorchDataset[Any]",
    test: "TorchDataset[Any] | None" = None,
    *,
    name: str = "mine",
    test_fraction: float = 0.2,
) -> Dataset:
    """Items that are an image or (image, label): PIL, uint8 tensors or float tensors in 0..1, all of one size.

    Without `test`, a share of each label (of the whole, without labels) becomes the test split.
    """
    images, labels = _gather(train, f"{name}, training split")
    if test is None:
        return divide(name, images, labels, fraction=test_fraction)
    test_images, test_labels = _gather(test, f"{name}, test split")
    if images.shape[1:] != test_images.shape[1:]:
        raise CfclError(
            f"{name}: training images are {tuple(images.shape[1:])} and test images {tuple(test_images.shape[1:])}, "
            "but an encoder takes images of one shape: resize them"
        )
    return Dataset(name, images, labels, test_images, test_labels)


def _gather(items: "TorchDataset[Any]", what: str) -> tuple[Tensor, Tensor | None]:
    size = len(items)  # type: ignore[arg-type]
    if size == 0:
        raise CfclError(f"{what}: there are no items, but training needs some: give a dataset that has some")
    images, labels = zip(*(_item(items[i], f"{what}, item {i}") for i in range(size)), strict=True)
    for position, image in enumerate(images):
        if image.shape != images[0].shape:
            raise CfclError(
                f"{what}, item {position}: shape {tuple(image.shape)} differs from {tuple(images[0].shape)} of item "
                "0, but all images must be of one size: resize them in the dataset"
            )
    return torch.stack(images), _labels(labels, what)


def _item(item: Any, what: str) -> tuple[Tensor, int | None]:
    parts = list(item) if isinstance(item, tuple | list) else [item]
    image, label = parts if len(parts) == 2 else (parts[0] if len(parts) == 1 else item, None)
    return _image(image, what), None if label is None else _label(label, what)


def _image(image: Any, what: str) -> Tensor:
    if isinstance(image, Image.Image):
        image = torch.from_numpy(np.array(image.convert("L" if image.mode in ("1", "L") else "RGB")))
        image = image if image.ndim == 2 else image.permute(2, 0, 1)
    if not isinstance(image, Tensor) or image.ndim not in (2, 3):
        form = f"{tuple(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
        raise CfclError(f"{what}: {form} is not a PIL image or a tensor [channels, height, width]: convert it")
    pixels: Tensor = image if image.ndim == 3 else image[None]
    if pixels.dtype == torch.uint8:
        return pixels
    if not pixels.is_floating_point() or not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise CfclError(f"{what}: pixels of {pixels.dtype} are neither uint8 nor floats in 0..1: leave out Normalize")
    return (pixels * 255).round().to(torch.uint8)


def _label(label: Any, what: str) -> int:
    try:
        number = int(label)
    except (TypeError, ValueError, RuntimeError):
        number = -1
    if number < 0 or number != label:
        raise CfclError(f"{what}: label {label!r} is not a whole number of 0 or more: number the labels")
    return number


def _labels(labels: Sequence[int | None], what: str) -> Tensor | None:
    known = [label for label in labels if label is not None]
    if known and len(known) != len(labels):
        raise CfclError(
            f"{what}: {len(known)} of {len(labels)} items have a label, but all or none must: complete them"
        )
    return torch.tensor(known) if known else None
