"""Where runs are kept: finished ones are found again by the digest of their config, and never done twice."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cfcl import config as configs
from cfcl import reading
from cfcl.errors import CfclError
from cfcl.records import from_json

FIRST = 1
"""The version of runs that do not say theirs: they were made before there was a second."""


@contextmanager
def opened(store: Path) -> Iterator[None]:
    """Holds `store` alone, without what interrupted runs have left in it."""
    with _locked(store):
        for folder in store.glob("*.partial"):
            shutil.rmtree(folder)
        yield


def _locked(store: Path) -> IO[str]:
    try:
        store.mkdir(parents=True, exist_ok=True)
        lock = (store / ".lock").open("w")
    except OSError as error:
        raise CfclError(f"cannot write below {str(store)!r}: {error.strerror}; choose another --out") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise CfclError(f"another study is using {str(store)!r}: wait until it ends, or choose another --out") from None
    return lock


def finished(store: Path) -> dict[str, Path]:
    """The finished runs in `store`, by digest."""
    found = sorted(file.parent for file in store.glob("*/config.toml") if not file.parent.name.endswith(".partial"))
    return {configs.load(folder / "config.toml").digest_under(numerics(folder)): folder for folder in found}


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
