"""Files that people hand us, read with a limit: no folder, no pipe, no endless device, nothing too large."""

import os
import stat
from pathlib import Path

LARGEST = 1 << 30
"""Bytes of a file of records."""
LARGEST_BY_HAND = 1 << 24
"""Bytes of a file of settings, or of a table for them."""


def memory() -> int | None:
    """Bytes of this machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def exists(path: Path) -> bool:
    """Whether anything is there; unlike pathlib, no where nothing can be, or nobody may look."""
    return os.path.exists(path)  # noqa: PTH110


def is_file(path: Path) -> bool:
    """Whether a file is there; else as `exists`."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Whether a folder is there; else as `exists`."""
    return os.path.isdir(path)  # noqa: PTH112


def expanded(path: Path) -> Path:
    """`path` with the home folder for `~`; as it is where nobody has that one."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def text(path: Path, *, limit: int = LARGEST) -> str:
    """The UTF-8 text of a file; an OSError or a ValueError says why there is none."""
    return data(path, limit=limit).decode("utf-8-sig")


def data(path: Path, *, limit: int) -> bytes:
    """The bytes of a file; an OSError or a ValueError says why there are none."""
    with open(path, "rb", opener=open_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a regular file")
        if found.st_size > limit:
            raise ValueError(f"it has {found.st_size:,} bytes, more than {limit:,}")
        return file.read()


def open_at_once(path: str, flags: int) -> int:
    """An opener that does not wait for whoever is at the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
