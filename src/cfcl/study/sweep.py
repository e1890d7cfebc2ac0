"""Many runs, each done once: finished ones are found again by the digest of their config."""

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cfcl import config as configs
from cfcl.config import Config
from cfcl.errors import CfclError
from cfcl.runs.jobs import Outcome, Watch, run_many


@dataclass(frozen=True)
class Sweep:
    """What a sweep has to do."""

    done: dict[str, Path]
    """Folders of finished runs, by digest."""
    todo: list[Config]
    """Those that are not finished, each once."""


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
        raise CfclError(f"another sweep is using {str(store)!r}: wait until it ends, or choose another --out") from None
    return lock


def look(store: Path, runs: Sequence[Config]) -> Sweep:
    """Which of `runs` are in `store` already."""
    done = finished(store)
    wanted = {run.digest: run for run in runs}
    return Sweep(
        {digest: done[digest] for digest in wanted if digest in done},
        [run for digest, run in wanted.items() if digest not in done],
    )


def finished(store: Path) -> dict[str, Path]:
    """The finished runs in `store`, by digest."""
    found = sorted(file.parent for file in store.glob("*/config.toml") if not file.parent.name.endswith(".partial"))
    return {configs.load(folder / "config.toml").digest: folder for folder in found}


def run(todo: Sequence[Config], store: Path, *, num_workers: int, device: str, watch: Watch) -> list[Outcome]:
    """Do the runs, in order, several at once; a failed one does not stop the others."""
    return run_many(todo, out=store, num_workers=num_workers, device=device, watch=watch, plotted=False)
