"""MATLAB 5 files: arrays of numbers, and nothing else. scipy's reader crashes the process on some damaged files."""

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 1 << 28
"""Bytes of an array, at most, once it is inflated: a small file may claim to hold far more."""

HEADER, VERSION = 128, b"\x00\x01IM"  # 1.0, little end first
COMPRESSED, MATRIX = 15, 14
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""How numbers are stored, by the type of an element."""
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
"""What numbers are, by the class of an array."""


def arrays(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """The arrays of numbers that are called so; ValueError, KeyError, zlib.error or struct.error in a damaged file."""
    found: dict[str, NDArray[Any]] = {}
    with path.open("rb") as file:
        if file.read(HEADER)[-4:] != VERSION:
            raise ValueError("it does not start like one")
        while tag := file.read(8):
            kind, size = struct.unpack("<II", tag)
            content = file.read(min(size, path.stat().st_size))
            if len(content) < size:
                raise ValueError(f"{len(content):,} bytes are left where {size:,} are promised")
            name, array = _matrix(*_inflated(content) if kind == COMPRESSED else (kind, memoryview(content)))
            if name in names and array is not None:
                found[name] = array
    return found


def _inflated(content: bytes) -> tuple[int, memoryview]:
    """The element inside a compressed one."""
    inflater = zlib.decompressobj()
    data = inflater.decompress(content, MAX_BYTES)
    if inflater.unconsumed_tail:
        raise ValueError(f"an array unpacks to more than {MAX_BYTES:,} bytes")
    if not inflater.eof:
        raise ValueError("compressed data end too early")
    kind, size = struct.unpack("<II", data[:8])
    return kind, memoryview(data)[8 : 8 + size]


def _matrix(kind: int, content: memoryview) -> tuple[str, NDArray[Any] | None]:
    """An array and its name; None where it is not one of numbers."""
    if kind != MATRIX:
        raise ValueError(f"an element is of type {kind}, not {MATRIX}")
    parts = _parts(content)
    (_, flags), (_, dims), (_, letters) = next(parts), next(parts), next(parts)
    name = bytes(letters).decode("ascii")
    (number_class,) = struct.unpack("<B", flags[:1])
    if number_class not in CLASSES:
        return name, None
    stored, numbers = next(parts)
    shape = struct.unpack(f"<{len(dims) // 4}i", dims)
    values = np.frombuffer(numbers, dtype=f"<{STORED[stored]}")
    if min(shape) < 0 or math.prod(shape) != len(values):
        raise ValueError(f"{len(values):,} numbers do not fill the shape {shape}")
    return name, values.astype(f"<{CLASSES[number_class]}", copy=False).reshape(shape, order="F")


def _parts(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each part of a matrix."""
    while len(content):
        (kind,) = struct.unpack("<I", content[:4])
        if kind > 0xFFFF:  # up to four bytes share the tag
            kind, size, start, end = kind & 0xFFFF, kind >> 16, 4, 8
        else:
            (size,) = struct.unpack("<I", content[4:8])
            start, end = 8, 8 + -(-size // 8) * 8
        yield kind, content[start : start + size]
        content = content[end:]
    raise ValueError("a part of an array is missing")
