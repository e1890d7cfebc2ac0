"""Files that people hand us, read with a limit: no folder, no pipe, no endless device, nothing too large."""

import os
import stat
from pathlib import Path

LARGEST = 1 << 30
"""Bytes of a file of records."""
LARGEST_BY_HAND = 1 << 24
"""Bytes of a file of settings, or of a table for them."""


def text(path: Path, *, limit: int = LARGEST) -> str:
    """The UTF-8 text of a file; an OSError or a ValueError says why there is none."""
    with open(path, "rb", opener=_open_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a regular file")
        if found.st_size > limit:
            raise ValueError(f"it has {found.st_size:,} bytes, more than {limit:,}")
        return file.read().decode("utf-8-sig")


def _open_at_once(path: str, flags: int) -> int:
    """Does not wait for somebody to write into a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
