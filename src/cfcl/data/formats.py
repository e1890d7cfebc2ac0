"""The publishers' files as arrays: uint8 images [points, channels, height, width] and labels 0..9."""

import bz2
import gzip
import math
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfcl.data import matlab
from cfcl.errors import CfclError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Split = tuple[Images, Labels]
T = TypeVar("T")

USPS_SIDE = 16
# What the largest split of any set needs, with room: a small file may claim to hold far more.
MAX_POINTS = 100_000
MAX_TEXT = 1 << 25


class _Bad(Exception):  # noqa: N818, it never leaves this module
    """What was found in a file, and the rule it breaks."""


def fashion_mnist(images: Path, labels: Path) -> Split:
    """A split of Fashion-MNIST: two gzip files in IDX format."""
    pixels = _reading("fashion-mnist", images, lambda: _idx(images, num_axes=3))
    found = _reading("fashion-mnist", labels, lambda: _digits(_idx(labels, num_axes=1), 0))
    if len(pixels) != len(found):
        complaint = f"holds {len(found)} labels for the {len(pixels)} images of {images.name}, but each image has one"
        raise _error("fashion-mnist", labels, complaint)
    return pixels[:, None], found


def usps(path: Path) -> Split:
    """A split of USPS: bzip2 text with lines `label 1:value ... 256:value`, values in -1..1."""
    return _reading("usps", path, lambda: _libsvm(_text(path)))


def svhn(path: Path) -> Split:
    """A split of SVHN (cropped digits): a MATLAB file with `X` and `y`, where label 10 is the digit 0."""
    return _reading("svhn", path, lambda: _cropped(*_matlab(path)))


def _reading(name: str, path: Path, read: Callable[[], T]) -> T:
    """What `read` returns; any damage it meets becomes one line."""
    try:
        return read()
    except _Bad as bad:
        raise _error(name, path, str(bad)) from None
    except EOFError:
        raise _error(name, path, "ends too early, but its compressed data must be complete") from None
    except (OSError, zlib.error, ValueError, struct.error) as error:
        raise _error(name, path, f"cannot be read ({_first_line(error)}), but must be the published format") from None


def _error(name: str, path: Path, complaint: str) -> CfclError:
    return CfclError(f"{path} {complaint}: run `cfcl data fetch {name}` again, or replace the file")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _idx(path: Path, *, num_axes: int) -> Images:
    wanted = bytes((0, 0, 8, num_axes))
    with gzip.open(path) as file:
        if (start := file.read(4)) != wanted:
            raise _Bad(f"starts with {start.hex()!r}, but IDX bytes of {num_axes} axes start with {wanted.hex()!r}")
        shape = struct.unpack(f">{num_axes}I", file.read(4 * num_axes))
        if num_axes == 3 and shape[1:] != (28, 28):
            raise _Bad(f"holds images of {shape[1]}×{shape[2]} pixels, but those of this set are 28×28")
        if shape[0] > MAX_POINTS:
            raise _Bad(f"claims to hold {shape[0]:,} points, but no split of this set has more than {MAX_POINTS:,}")
        size = math.prod(shape)
        data = file.read(size + 1)
    if len(data) != size:
        found = f"{len(data)}" if len(data) < size else f"more than {size}"
        raise _Bad(f"holds {found} values, but its header promises {' × '.join(map(str, shape))}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _text(path: Path) -> bytes:
    with bz2.open(path) as file:
        data = file.read(MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise _Bad(f"unpacks to more than {MAX_TEXT:,} bytes, but no split of this set does")
    return data


def _digits(labels: NDArray[Any], first: int) -> Labels:
    """Labels as int64, checked to be whole numbers from `first` to `first` + 9."""
    fits = (labels >= first) & (labels < first + 10) & (labels == np.floor(labels))
    if not fits.all():
        place = int((~fits).argmax())
        raise _Bad(f"has the label {labels[place]:g} at point {place}, but labels are {first} to {first + 9}")
    return labels.astype(np.int64)


def _libsvm(data: bytes) -> Split:
    num_pixels = USPS_SIDE**2
    lines = data.splitlines()
    table = _numbers(data.replace(b":", b" "))
    if not lines or table.size != len(lines) * (1 + 2 * num_pixels):
        raise _Bad(_odd_line(lines, num_pixels))
    rows = table.reshape(len(lines), -1)
    if (rows[:, 1::2] != np.arange(1, num_pixels + 1)).any():
        raise _Bad(f"numbers its values otherwise, but each line must have 1: to {num_pixels}: in order")
    values = rows[:, 2::2].astype(np.float32)
    if not (np.abs(values) <= 1).all():
        raise _Bad(f"has a value of {values[~(np.abs(values) <= 1)][0]:g}, but values lie in -1..1")
    # Truncated, not rounded: the usual conversion of this set to bytes.
    pixels = ((values + 1) / 2 * 255).astype(np.uint8)
    return pixels.reshape(-1, 1, USPS_SIDE, USPS_SIDE), _digits(rows[:, 0], 1) - 1


def _numbers(text: bytes) -> NDArray[np.float64]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy only warns where the text stops being numbers
        try:
            return np.fromstring(text.decode("ascii"), sep=" ")
        except (DeprecationWarning, ValueError):
            raise _Bad("holds something other than numbers, but LIBSVM text is `label 1:value 2:value ...`") from None


def _odd_line(lines: list[bytes], num_pixels: int) -> str:
    for number, line in enumerate(lines, start=1):
        if (found := line.count(b":")) != num_pixels or len(line.split()) != num_pixels + 1:
            return f"has {found} values in line {number}, but each line holds a label and {num_pixels} values"
    return "holds no line, but each line is an image"


def _matlab(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        content = matlab.arrays(path, ("X", "y"))
    except (OSError, ValueError, KeyError, zlib.error, struct.error) as error:
        raise _Bad(f"cannot be read ({_first_line(error)}), but must be a complete MATLAB 5 file") from None
    for key in ("X", "y"):
        if key not in content:
            raise _Bad(f"holds no numbers `{key}`, but has to hold `X` and `y`")
    return content["X"], content["y"]


def _cropped(pixels: NDArray[Any], labels: NDArray[Any]) -> Split:
    if pixels.dtype != np.uint8:
        raise _Bad(f"holds `X` of type {pixels.dtype}, but pixels are uint8")
    if pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3):
        raise _Bad(f"holds `X` of shape {pixels.shape}, but it must be (32, 32, 3, points)")
    if labels.dtype.kind not in "uif" or labels.shape != (pixels.shape[3], 1):
        raise _Bad(
            f"holds `y` of shape {labels.shape} and type {labels.dtype}, but it must be a number for each of the "
            f"{pixels.shape[3]} images"
        )
    return np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)), _digits(labels[:, 0], 1) % 10
