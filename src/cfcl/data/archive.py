"""Arrays in an .npz file: their heads are read first, and nothing larger than they may be is unpacked."""

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfcl.data.limits import check_memory
from cfcl.errors import CfclError

KEYS = ("images", "labels", "devices", "test_images", "test_labels")
SMALL = 1 << 28
"""Bytes that any file may unpack to."""
MAX_RATIO = 200
"""How many times its size a larger file may unpack to; pictures do not come near."""


class Head(NamedTuple):
    """What an array says of itself."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_column: bool = False


def heads(path: Path, *, whole: bool = True) -> dict[str, Head]:
    """Shape and type of every array, checked to be what it may be, and to fit into memory if the `whole` will be read;
    nothing is unpacked.
    """
    with _archive(path) as archive:
        found = {info.filename.removesuffix(".npy"): _head(archive, info) for info in archive.infolist()}
        claimed = sum(info.file_size for info in archive.infolist())
    for key in found:
        if key not in KEYS:
            raise bad(path, f"holds {key!r}", f"the names are {', '.join(KEYS)}", "rename or remove it")
    if "images" not in found:
        raise bad(path, f"holds {', '.join(found) or 'nothing'}", "needs an array `images`", "add it")
    if claimed > max(SMALL, MAX_RATIO * path.stat().st_size):
        raise bad(
            path,
            f"of {path.stat().st_size:,} bytes would unpack to {claimed:,}",
            f"more than {MAX_RATIO} times its size is refused",
            "save it with numpy.savez, which does not compress",
        )
    if whole:
        check_memory(claimed, f"the arrays of {path}", "give fewer or smaller images")
    _check_types(path, found)
    return found


def read(path: Path, keys: Sequence[str] = KEYS) -> dict[str, NDArray[Any]]:
    """The arrays of those names that are there."""
    wanted = [key for key in heads(path) if key in keys]
    with _archive(path) as archive:
        return {key: _unpacked(archive, key) for key in wanted}


def stream(path: Path, key: str, num_rows: int) -> Iterator[NDArray[Any]]:
    """One array, so many rows at a time, with no more of it in memory."""
    heads(path, whole=False)
    with _archive(path) as archive, archive.open(f"{key}.npy") as member:
        head = _read_head(member)
        if head.by_column:
            raise bad(path, f"holds `{key}` column by column", "images lie one after another", "save a copy in C order")
        size = math.prod(head.shape[1:]) * head.dtype.itemsize
        for start in range(0, head.shape[0], num_rows):
            count = min(num_rows, head.shape[0] - start)
            content = member.read(count * size)
            if len(content) != count * size:
                raise ValueError(f"{key} ends too early")
            yield np.frombuffer(content, head.dtype).reshape(count, *head.shape[1:])


class Axes(NamedTuple):
    """What the axes of an array of images stand for."""

    points: int
    height: int
    width: int
    channels: int
    second: bool
    """Whether the channels are the second axis, and not the last one or left out."""


def axes(path: Path, key: str, shape: tuple[int, ...]) -> Axes:
    """Points, height, width and channels, wherever the channels stand."""
    found = (*shape, 1) if len(shape) == 3 else shape
    first, last = (len(found) == 4 and found[axis] in (1, 3) for axis in (1, 3))
    if first == last or math.prod(found) == 0:
        raise bad(
            path,
            f"holds `{key}` of shape {shape}",
            "it must be [points, height, width], with 1 or 3 channels either last or second",
            "reshape it",
        )
    points, *rest = found
    channels, height, width = rest if first else (rest[2], rest[0], rest[1])
    return Axes(points, height, width, channels, second=first)


def bad(path: Path, found: str, rule: str, remedy: str) -> CfclError:
    """The complaint about a file."""
    return CfclError(f"{path} {found}, but {rule}: {remedy}")


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """The open file; whatever is wrong with it becomes one line."""
    try:
        with path.open("rb") as file:
            if file.read(6) == np.lib.format.MAGIC_PREFIX:
                raise bad(path, "holds a single array", "arrays need names", "save it with numpy.savez(images=...)")
            with zipfile.ZipFile(file) as archive:
                yield archive
    except CfclError:
        raise
    except FileNotFoundError:
        raise CfclError(f"data.path={str(path)!r} does not exist: give an .npz file") from None
    except Exception as error:  # zip and numpy fail in many ways on damaged bytes
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise CfclError(
            f"{path} is not an .npz file of plain arrays ({reason}): save it with numpy.savez, without objects"
        ) from None


def _head(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Head:
    with archive.open(info) as member:
        head = _read_head(member)
        size = math.prod(head.shape) * head.dtype.itemsize
        if head.dtype.hasobject or min(head.shape, default=0) < 0:
            raise ValueError(f"{info.filename} of shape {head.shape} holds {head.dtype}")
        if member.tell() + size != info.file_size:
            raise ValueError(f"{info.filename} promises {size:,} bytes, but has {info.file_size - member.tell():,}")
    return head


def _read_head(member: IO[bytes]) -> Head:
    version = np.lib.format.read_magic(member)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"array format {version} is not 1.0 or 2.0")
    shape, by_column, dtype = readers[version](member)
    return Head(shape, dtype, by_column and len(shape) > 1)


def _unpacked(archive: zipfile.ZipFile, key: str) -> NDArray[Any]:
    with archive.open(f"{key}.npy") as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def _check_types(path: Path, found: Mapping[str, Head]) -> None:
    for key, (shape, dtype, _) in found.items():
        if key.endswith("images"):
            if dtype != np.uint8:
                raise bad(path, f"holds `{key}` of type {dtype}", "pixels are uint8", "convert them to 0..255")
        elif dtype.kind not in "ui" or len(shape) != 1:
            raise bad(
                path, f"holds `{key}` of type {dtype} and shape {shape}", "they are whole numbers in a row",
                "convert them",
            )  # fmt: skip
