"""Images as people have them, as the batch that an encoder takes: resized and with its channels."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from cfcl.data import pictures, saving
from cfcl.errors import CfclError
from cfcl.models.encoder import reason

Shape = tuple[int, int, int]
"""Channels, height and width."""


def batch(images: object, shape: Shape) -> Tensor:
    """Images as uint8, or as float32 in 0..1 where they come so in this very shape.

    One image or many: paths, PIL images, arrays and tensors of uint8 or of floats in 0..1, of any size, grey or in
    colour, with channels first or last. What does not fit is resized as training images were; floats are then rounded
    to 8 bits. An array of three axes is one image if its first or last axis has 1 or 3 entries, and otherwise, or if
    its last two are those of a grey encoder, a batch of grey ones.
    """
    with pictures.quietly():
        return _batch(images, shape)


def _batch(images: object, shape: Shape) -> Tensor:
    if isinstance(images, str | Path | Image.Image):
        return _one(images, shape)
    if isinstance(images, Tensor | np.ndarray):
        return _fitted(_as_tensor(images), shape)
    if isinstance(images, Iterable):
        items = list(images)
        if any(isinstance(item, str | Path | Image.Image | Tensor | np.ndarray) for item in items):
            return _joined([_one(item, shape) for item in items])
        return _fitted(_as_tensor(items), shape)
    return _fitted(_as_tensor(images), shape)


def pixels(image: Image.Image, shape: Shape) -> pictures.Pixels:
    """A PIL image of mode L or RGB with the channels and the size of `shape`."""
    channels, height, width = shape
    mode = "L" if channels == 1 else "RGB"
    return pictures.fitted(image if image.mode == mode else image.convert(mode), (height, width))


def picture(path: Path, shape: Shape) -> pictures.Pixels:
    """The picture in a file with the channels and the size of `shape`."""
    return pixels(pictures.opened(path, shape[1:]), shape)


def _one(image: object, shape: Shape) -> Tensor:
    if isinstance(image, str | Path):
        return torch.from_numpy(picture(Path(image), shape).copy())[None]
    if isinstance(image, Image.Image):
        try:
            return torch.from_numpy(pixels(pictures.plain(image), shape).copy())[None]
        except (ValueError, OSError) as error:
            raise CfclError(f"an image cannot be used ({error}): convert it to 8 bits, such as mode L or RGB") from None
    found = _fitted(_as_tensor(image), shape)
    if len(found) != 1:
        raise CfclError(f"an item of the list holds {len(found)} images: give one each, or one array of all")
    return found


def _joined(parts: list[Tensor]) -> Tensor:
    if all(part.dtype == torch.uint8 for part in parts):
        return torch.cat(parts)
    return torch.cat([part.float() / 255 if part.dtype == torch.uint8 else part for part in parts])


def _as_tensor(images: object) -> Tensor:
    try:
        found = torch.as_tensor(images)
        if found.is_meta or found.is_nested or found.layout is not torch.strided:
            raise TypeError("its values do not lie side by side in memory")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise CfclError(
            f"{type(images).__name__} is no batch of images ({reason(error)}): give paths, PIL images, a tensor, an "
            "array or nested lists of numbers"
        ) from None
    return found


def _fitted(images: Tensor, shape: Shape) -> Tensor:
    given = _channels_first(images, shape)
    if given.dtype != torch.uint8:
        given = _shares(given)
    if tuple(given.shape[1:]) == shape:
        return given
    if given.dtype != torch.uint8:
        given = given.mul(255).round().to(torch.uint8)
    found = [pixels(saving.picture(image), shape) for image in given.cpu()]
    return torch.from_numpy(np.stack(found)) if found else torch.zeros(0, *shape, dtype=torch.uint8)


def _shares(images: Tensor) -> Tensor:
    """Floats that are shares of full brightness."""
    if not images.is_floating_point() or not bool((((found := images.float()) >= 0) & (found <= 1)).all()):
        raise CfclError(
            f"images of type {images.dtype} are neither uint8 pixels nor floats in 0..1: convert or rescale them"
        )
    return found


def _channels_first(images: Tensor, shape: Shape) -> Tensor:
    """As [batch, channels, height, width]."""
    if images.ndim == 2:
        found = images[None, None]
    elif images.ndim == 3:
        grey = shape[0] == 1 and tuple(images.shape[1:]) == shape[1:]
        one = not grey and (images.shape[0] in (1, 3) or images.shape[2] in (1, 3))
        found = images[None] if one else images[:, None]
    else:
        found = images
    if found.ndim == 4 and found.shape[1] not in (1, 3) and found.shape[3] in (1, 3):
        found = found.movedim(3, 1)
    if found.ndim != 4 or found.shape[1] not in (1, 3) or 0 in found.shape[2:]:
        raise CfclError(
            f"images of shape {tuple(images.shape)} do not fit this encoder, which takes (batch, "
            f"{', '.join(map(str, shape))}) or images of another size with 1 or 3 channels: reshape them"
        )
    return found
