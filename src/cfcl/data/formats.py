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

from cfcl.errors import CfclError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Split = tuple[Images, Labels]
T = TypeVar("T")

USPS_SIDE = 16


class _Bad(Exception):  # noqa: N818, it never leaves this module
    """What was found in a file, and the rule it breaks."""


def fashion_mnist(images: Path, labels: Path) -> Split:
    """A split of Fashion-MNIST: two gzip files in IDX format."""
    pixels = _reading("fashion-mnist", images, lambda: _idx(_unpacked(gzip.open, images), num_axes=3))
    found = _reading("fashion-mnist", labels, lambda: _digits(_idx(_unpacked(gzip.open, labels), num_axes=1), 0))
    if len(pixels) != len(found):
        complaint = f"holds {len(found)} labels for the {len(pixels)} images of {images.name}, but each image has one"
        raise _error("fashion-mnist", labels, complaint)
    return pixels[:, None], found


def usps(path: Path) -> Split:
    """A split of USPS: bzip2 text with lines `label 1:value ... 256:value`, values in -1..1."""
    return _reading("usps", path, lambda: _libsvm(_unpacked(bz2.open, path)))


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


def _unpacked(opened: Callable[[Path], Any], path: Path) -> bytes:
    with opened(path) as file:
        return bytes(file.read())


def _error(name: str, path: Path, complaint: str) -> CfclError:
    return CfclError(f"{path} {complaint}: run `cfcl data fetch {name}` again, or replace the file")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _idx(data: bytes, *, num_axes: int) -> Images:
    start = 4 + 4 * num_axes
    wanted = bytes((0, 0, 8, num_axes))
    if data[:4] != wanted:
        raise _Bad(f"starts with {data[:4].hex()!r}, but IDX bytes of {num_axes} axes start with {wanted.hex()!r}")
    shape = struct.unpack(f">{num_axes}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise _Bad(f"holds {len(data) - start} values, but its header promises {' × '.join(map(str, shape))}")
    if num_axes == 3 and shape[1:] != (28, 28):
        raise _Bad(f"holds images of {shape[1]}×{shape[2]} pixels, but those of this set are 28×28")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


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
    # Slow to import, and only this set needs it.
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # its reader fails in many ways on damaged bytes
        raise _Bad(f"cannot be read ({_first_line(error)}), but must be a complete MATLAB 5 file") from None
    for key in ("X", "y"):
        if key not in content:
            raise _Bad(f"holds no `{key}`, but has to hold `X` and `y`")
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
