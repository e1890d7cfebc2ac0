"""What need not be computed twice: decoded images and the checksums of big files."""

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from cfcl.data.notes import note

Arrays = Mapping[str, NDArray[np.uint8]]


def folder() -> Path:
    """`$CFCL_CACHE_DIR`, else `$XDG_CACHE_HOME/cfcl`, else `~/.cache/cfcl`."""
    if chosen := os.environ.get("CFCL_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cfcl"


def decoded(key: str, make: Callable[[], Arrays]) -> Arrays:
    """The arrays stored under `key`, memory-mapped; made, and stored for the next time, if they are not there."""
    place = folder() / "decoded" / key
    found = _load(place)
    if found is not None:
        return found
    arrays = make()
    try:
        _store(place, arrays)
    except OSError as error:
        note(f"cannot keep decoded images in {place} ({error.strerror}), so every run decodes them: set CFCL_CACHE_DIR")
        return arrays
    return _load(place) or arrays


def md5(path: Path) -> str:
    """The MD5 sum of a file, remembered for as long as its size and time stay."""
    status = path.stat()
    identity = f"{path.resolve()}\n{status.st_size}\n{status.st_mtime_ns}"
    memo = folder() / "checksums" / hashlib.sha256(identity.encode()).hexdigest()[:32]
    with suppress(OSError, UnicodeDecodeError):
        text = memo.read_text(encoding="ascii")
        if len(text) == 32:
            return text
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    with suppress(OSError):  # then it is computed again next time
        _write(memo, lambda file: file.write(found.encode()))
    return found


def _load(place: Path) -> Arrays | None:
    """The arrays in `place` if all of them are there and are what was stored."""
    try:
        sums = json.loads((place / "sums.json").read_text(encoding="utf-8"))
        arrays = {name: _mapped(place / f"{name}.npy") for name in sums}
        whole = all(_sum(array) == sums[name] for name, array in arrays.items())
    except (OSError, ValueError, EOFError, TypeError, AttributeError):
        return None
    return arrays if arrays and whole else None


def _mapped(path: Path) -> NDArray[np.uint8]:
    # Copy on write: all processes share the pages, and torch may take the memory for its own without complaint.
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    if array.dtype != np.uint8:
        raise ValueError(f"{path} holds {array.dtype}")
    return np.asarray(array)


def _store(place: Path, arrays: Arrays) -> None:
    for name, array in arrays.items():
        _write(place / f"{name}.npy", lambda file, array=array: np.save(file, array, allow_pickle=False))  # type: ignore[misc]
    sums = json.dumps({name: _sum(array) for name, array in arrays.items()})
    _write(place / "sums.json", lambda file: file.write(sums.encode()))  # last: it vouches for the others


def _sum(array: NDArray[np.uint8]) -> int:
    return zlib.crc32(repr(array.shape).encode(), zlib.crc32(np.ascontiguousarray(array).reshape(-1).data))


def _write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file whole or not at all, whoever else writes it at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
