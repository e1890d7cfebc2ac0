"""Rows of numbers as images: which shape they have, what counts as black and white, and the pixels of it."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cfcl.errors import CfclError
from cfcl.use.intake import Shape

CHANNELS = (1, 3)
COLOUR = 8
"""From this side on, rows as long as a square in colour are taken for one, whose order of channels is not known."""

Array = NDArray[Any]
Scale = tuple[float, float]
"""What counts as black and as white."""


def parse_shape(given: object) -> Shape:
    """(height, width), or with the channels, 1 or 3, first or last, as channels, height and width."""
    sides = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str | bytes) else ()
    whole = all(isinstance(side, int | np.integer) and side > 0 for side in sides)
    if whole and len(sides) == 2:
        return 1, int(sides[0]), int(sides[1])
    if whole and len(sides) == 3 and sides[0] in CHANNELS:
        return int(sides[0]), int(sides[1]), int(sides[2])
    if whole and len(sides) == 3 and sides[2] in CHANNELS:
        return int(sides[2]), int(sides[0]), int(sides[1])
    raise CfclError(
        f"image_shape={given!r:.60} is no height and width, with 1 or 3 channels before or after them: give such as "
        "(28, 28) or (3, 32, 32)"
    )


def rows(images: Array) -> tuple[Array, Shape]:
    """Images [n, h, w], [n, c, h, w] or [n, h, w, c] as rows, channels first, and the shape of one.

    Of four axes the second counts the channels if it has 1 or 3 entries, and else the last.
    """
    found = images[:, None] if images.ndim == 3 else images
    if found.ndim == 4 and found.shape[1] not in CHANNELS:
        found = np.moveaxis(found, 3, 1)
    if found.ndim != 4 or found.shape[1] not in CHANNELS or 0 in found.shape[2:]:
        raise CfclError(
            f"X of shape {images.shape} holds no images: give [n, height, width], with 1 or 3 channels in the second "
            "or last place, or rows of pixels"
        )
    channels, height, width = found.shape[1:]
    return found.reshape(len(found), -1), (channels, height, width)


def channels_first(values: Array, given: object) -> Array:
    """Rows in the order of the axes of an image of shape `given`, reordered if its channels come last."""
    channels, height, width = parse_shape(given)
    last = isinstance(given, Sequence) and len(given) == 3 and given[0] not in CHANNELS
    if not last:
        return values
    return np.moveaxis(values.reshape(-1, height, width, channels), 3, 1).reshape(len(values), -1)


def infer(num_features: int) -> Shape:
    """The shape of grey images whose rows are so long: a square, or the smallest that holds them."""
    side = math.isqrt(num_features - 1) + 1
    third = math.isqrt(num_features // 3)
    if side**2 == num_features:
        return 1, side, side
    if third >= COLOUR and 3 * third**2 == num_features:
        raise CfclError(
            f"X has {num_features:,} features, which may be {third}×{third} pixels in colour: give image_shape="
            f"(3, {third}, {third}) or ({third}, {third}, 3), by where the channels are"
        )
    warnings.warn(
        f"X has {num_features:,} features, which is no square number: they fill a grey image of {side}×{side} row by "
        "row, and the rest is black; give image_shape if they are pixels",
        stacklevel=2,
    )
    return 1, side, side


def scale_of(values: Array) -> Scale:
    """What counts as black and white in `values`: 0 and 255 in uint8, 0 and 1 in shares, else 0 and the largest.

    Where there are negative values, the smallest is black.
    """
    if values.dtype == np.uint8:
        return 0.0, 255.0
    low, high = min(float(values.min()), 0.0), float(values.max())
    if low == 0.0 and high <= 1.0:
        return 0.0, 1.0
    high = high if high > low else low + 1.0
    if not math.isfinite(high - low):
        raise CfclError(f"the values of X lie between {low:g} and {high:g}, which is too far apart: rescale them")
    return low, high


def pixels(values: Array, shape: Shape, scale: Scale) -> Tensor:
    """Rows as uint8 [n, channels, height, width]: black where they end early, and cut off below and above `scale`."""
    low, high = scale
    if values.dtype == np.uint8 and scale == (0.0, 255.0):
        found = values
    else:
        shares = (values.astype(np.float64) - low) / (high - low)
        found = (shares.clip(0.0, 1.0) * 255).round().astype(np.uint8)
    missing = math.prod(shape) - found.shape[1]
    if missing:
        found = np.pad(found, ((0, 0), (0, missing)))
    return torch.from_numpy(np.ascontiguousarray(found).reshape(-1, *shape).copy())
