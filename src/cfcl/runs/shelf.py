"""A folder of many runs: finished ones are found again by the digest of their config, and never done twice."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cfcl import config as configs
from cfcl import reading
from cfcl.errors import CfclError
from cfcl.records import from_json
from cfcl.runs.folders import CONFIG, LOCK, PARTIAL

FIRST = 1
"""The version of runs that do not say theirs: they were made before there was a second."""


@contextmanager
def opened(shelf: Path) -> Iterator[None]:
    """Holds `shelf` alone; a folder that nothing was put into is gone afterwards."""
    with _locked(shelf):
        try:
            yield
        finally:
            if not any(path.name != LOCK for path in shelf.iterdir()):
                (shelf / LOCK).unlink(missing_ok=True)
                shelf.rmdir()


def _locked(shelf: Path) -> IO[str]:
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        lock = (shelf / LOCK).open("a")
    except OSError as error:
        raise CfclError(f"cannot write below {str(shelf)!r}: {error.strerror}; choose another --out") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise CfclError(
            f"another process is using {str(shelf)!r}: wait until it ends, or choose another --out"
        ) from None
    return lock


def finished(shelf: Path) -> dict[str, Path]:
    """The finished runs in `shelf`, by digest."""
    try:
        found = sorted(file.parent for file in shelf.glob(f"*/{CONFIG}") if not file.parent.name.endswith(PARTIAL))
    except OSError as error:
        raise CfclError(f"cannot look below {str(shelf)!r}: {error.strerror}; choose another --out") from None
    return {configs.load(folder / CONFIG).digest_under(numerics(folder)): folder for folder in found}


def numerics(folder: Path) -> int:
    """The version of numerics that the run in `folder` was made under."""
    try:
        environment = from_json(reading.text(folder / "environment.json"))
        found = environment.get("numerics", FIRST) if isinstance(environment, dict) else None
        if type(found) is not int:
            raise ValueError("environment.json does not say which numerics it is of")
    except (OSError, ValueError) as error:
        raise CfclError(f"run folder {str(folder)!r} cannot be read: {error}; remove it, and run it again") from None
    return found
