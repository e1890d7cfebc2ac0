"""What run folders there are, how far each has come, and how to go on with those that are not finished."""

import fcntl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cfcl import config as configs
from cfcl import reading
from cfcl.errors import LONGEST, CfclError
from cfcl.runs import checkpoints
from cfcl.runs.folders import CONFIG, FAILED, LOCK, METRICS, PARTIAL
from cfcl.shown import command

State = Literal["finished", "running", "unfinished", "failed", "unreadable"]


@dataclass(frozen=True)
class Entry:
    """A run folder."""

    folder: Path
    state: State
    step: int
    """From where it would go on; the last one if it is finished."""
    num_steps: int
    num_bytes: int
    reason: str = ""
    """Why it failed, or cannot be read."""

    @property
    def command(self) -> str:
        """What goes on with it; nothing if there is no need."""
        return command("cfcl", "resume", str(self.folder)) if self.state in ("unfinished", "failed") else ""


def below(path: Path) -> list[Entry]:
    """The run folders at or below `path`, in order of their names."""
    if not reading.is_folder(path):
        raise CfclError(f"{str(path)!r} is no folder: give one that `cfcl run` wrote to")
    try:
        return [_entry(folder) for folder in sorted(_folders(path))]
    except OSError as error:
        raise CfclError(f"cannot look below {str(path)!r}: {error}; give a folder that `cfcl run` wrote to") from None


def unfinished(paths: list[Path]) -> list[Entry]:
    """The run folders at or below `paths` that are not finished."""
    there = [path for path in paths if reading.is_folder(path)]
    found = {entry.folder: entry for path in there for entry in below(path) if entry.state != "finished"}
    return list(found.values())


def _folders(path: Path) -> Iterator[Path]:
    return (file.parent for file in path.rglob(CONFIG) if (file.parent / METRICS).exists())


def _entry(folder: Path) -> Entry:
    size = sum(map(_size, folder.rglob("*")))
    try:
        steps = configs.load(folder / CONFIG).train.steps
    except CfclError as error:
        return Entry(folder, "unreadable", 0, 0, size, str(error))
    if not folder.name.endswith(PARTIAL):
        return Entry(folder, "finished", steps, steps, size)
    saved = checkpoints.files(folder)
    step = checkpoints.step_of(saved[0]) if saved else 0
    if _is_locked(folder):
        return Entry(folder, "running", step, steps, size)
    failed = folder / FAILED
    if failed.is_file():
        return Entry(folder, "failed", step, steps, size, _beginning(failed))
    return Entry(folder, "unfinished", step, steps, size)


def _beginning(file: Path) -> str:
    """What one line may hold of a file."""
    with suppress(OSError), file.open("rb") as content:
        return content.read(LONGEST).decode("utf-8", errors="replace").strip()
    return ""


def _size(path: Path) -> int:
    with suppress(OSError):  # a run that goes on replaces its checkpoints
        return path.stat().st_size if path.is_file() else 0
    return 0


def _is_locked(folder: Path) -> bool:
    try:
        with open(folder / LOCK, encoding="utf-8", opener=reading.open_at_once) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
