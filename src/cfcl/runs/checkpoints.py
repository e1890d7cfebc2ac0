"""Checkpoints of an unfinished run: one file each, there whole or not at all, with its checksum in its name."""

import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from cfcl import reading
from cfcl.files import write_atomically

NEWEST = 2
"""How many are kept."""
NAME = re.compile(r"checkpoint-(\d{8})-([0-9a-f]{32})\.safetensors")

Note = Callable[[str], None]


def write(folder: Path, step: int, data: bytes) -> None:
    """Save `data` as the checkpoint of `step`; older ones go, but for the one before."""
    write_atomically(folder / f"checkpoint-{step:08}-{_checksum(data)}.safetensors", data)
    for file in files(folder)[NEWEST:]:
        file.unlink()


def files(folder: Path) -> list[Path]:
    """The checkpoints in `folder`, newest first."""
    return sorted((file for file in folder.glob("checkpoint-*") if NAME.fullmatch(file.name)), reverse=True)


def step_of(file: Path) -> int:
    """The number of updates that a checkpoint comes after."""
    found = NAME.fullmatch(file.name)
    assert found is not None
    return int(found[1])


def readable(folder: Path, note: Note) -> Iterator[tuple[Path, bytes]]:
    """Checkpoints that are as they were written, newest first; of others `note` is told."""
    most = reading.memory() or sys.maxsize
    for file in files(folder):
        try:
            data = reading.data(file, limit=most)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            note(f"checkpoint {file.name} cannot be read ({reason}): the one before it is tried")
            continue
        if _checksum(data) != NAME.fullmatch(file.name)[2]:  # type: ignore[index]
            note(f"checkpoint {file.name} is damaged (its checksum differs): the one before it is tried")
            continue
        yield file, data


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
