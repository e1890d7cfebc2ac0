"""Any `torch.utils.data.Dataset` as a dataset of ours."""

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from cfcl.data.pictures import fitted, plain
from cfcl.data.splits import MAX_LABEL, Dataset, divide, joined
from cfcl.errors import CfclError


def from_torch(
    train: "TorchDataset[Any]",
    test: "TorchDataset[Any] | None" = None,
    *,
    name: str = "mine",
    test_fraction: float = 0.2,
) -> Dataset:
    """Items that are an image or (image, label): PIL, uint8 tensors or float tensors in 0..1, all of one size.

    Tensors have their channels first, or last if those are 1 or 3. What is transparent becomes white. Without `test`, a
    share of each label (of the whole, without labels) becomes the test split.
    """
    images, labels = _gather(train, f"{name}, training split")
    if test is None:
        return divide(name, images, labels, fraction=test_fraction)
    return joined(name, (images, labels), _gather(test, f"{name}, test split"))


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
        try:
            return torch.from_numpy(fitted(plain(image), None).copy())
        except (ValueError, OSError) as error:
            raise CfclError(f"{what}: {error}: convert it to 8 bits, such as mode L or RGB") from None
    if not isinstance(image, Tensor) or image.ndim not in (2, 3):
        form = f"{tuple(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
        raise CfclError(f"{what}: {form} is not a PIL image or a tensor [channels, height, width]: convert it")
    pixels = _channels_first(image, what) if image.ndim == 3 else image[None]
    if pixels.dtype == torch.uint8:
        return pixels
    if not pixels.is_floating_point() or not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise CfclError(f"{what}: pixels of {pixels.dtype} are neither uint8 nor floats in 0..1: leave out Normalize")
    return (pixels * 255).round().to(torch.uint8)


def _channels_first(image: Tensor, what: str) -> Tensor:
    """[channels, height, width], also from [height, width, channels] with 1 or 3 channels."""
    first, last = (image.shape[axis] in (1, 3) for axis in (0, 2))
    if first and last:
        raise CfclError(
            f"{what}: {tuple(image.shape)} may have its channels first or last: give images larger than 3 pixels"
        )
    return image.permute(2, 0, 1) if last else image


def _label(label: Any, what: str) -> int:
    try:
        number = int(label)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = -1
    if not 0 <= number <= MAX_LABEL or number != label:
        raise CfclError(f"{what}: label {label!r} is not a whole number from 0 to {MAX_LABEL}: number the labels")
    return number


def _labels(labels: Sequence[int | None], what: str) -> Tensor | None:
    known = [label for label in labels if label is not None]
    if known and len(known) != len(labels):
        raise CfclError(
            f"{what}: {len(known)} of {len(labels)} items have a label, but all or none must: complete them"
        )
    return torch.tensor(known) if known else None
