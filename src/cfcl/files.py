"""Files that are there whole or not at all."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PART = ".part"


def write_atomically(path: str | Path, data: bytes) -> None:
    """Put a file with `data` at `path`, as `opened_atomically` does."""
    with opened_atomically(path) as file:
        file.write(data)


@contextmanager
def opened_atomically(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write to, which is at `path` when all of it is there; until it is whole and on disk, what stood there
    stays. OSError if it cannot be.

    A link is followed, so that the file behind it is the one replaced. A folder, pipe or device is never replaced.
    """
    try:
        path = Path(path).resolve()
    except (ValueError, RuntimeError):  # a zero byte in it, or links in a ring
        raise OSError(errno.EINVAL, "there can be no file of this name", str(path)) from None
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "something that is no regular file is in its place", str(path))
    # A name of its own, short whatever `path` is called, so that two writers do not meet.
    part = path.with_name(f".{secrets.token_hex(8)}{PART}")
    try:
        # Unlike tempfile's, with the permissions that any new file gets.
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def remove_parts(folder: Path) -> None:
    """Remove what writers left in `folder` that were killed; nobody else may be writing there."""
    for part in folder.glob(f".????????????????{PART}"):
        part.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Have the folder's new entry on disk; some file systems cannot, and the file is in its place all the same."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
