"""Run folders: what a run leaves on disk, and how it is read back. Nothing here is overwritten or half-written."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from cfcl import config as configs
from cfcl.config import Config
from cfcl.errors import CfclError, WorkerLost

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A finished run, read from its folder."""

    folder: Path
    config: Config
    rows: list[Row]
    costs: list[Row]
    timings: Row
    environment: Row

    def of(self, kind: str) -> list[Row]:
        """The records of one kind: setup, eval, train, pull or final."""
        return [row for row in self.rows if row["kind"] == kind]


def load(folder: str | Path) -> Run:
    """The run in `folder`."""
    path = Path(folder)
    if not (path / "metrics.jsonl").is_file():
        raise CfclError(
            f"{str(path)!r} is not a run folder (it has no metrics.jsonl): give a folder that `cfcl run` wrote"
        )
    try:
        return Run(
            folder=path,
            config=configs.load(path / "config.toml"),
            rows=[json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()],
            costs=json.loads((path / "costs.json").read_text()),
            timings=json.loads((path / "timings.json").read_text()),
            environment=json.loads((path / "environment.json").read_text()),
        )
    except (OSError, ValueError) as error:
        raise CfclError(f"run folder {str(path)!r} cannot be read: {error}; run it again") from None


def find(paths: list[Path]) -> list[Run]:
    """The finished runs at or below `paths`, in order of their folders."""
    folders: list[Path] = []
    for path in paths:
        found = [path] if (path / "metrics.jsonl").is_file() else sorted(_finished_below(path))
        if not found:
            raise CfclError(f"there is no finished run at or below {str(path)!r}: give folders that `cfcl run` wrote")
        folders += [folder for folder in found if folder not in folders]
    return [load(folder) for folder in folders]


def claim(parent: Path, name: str) -> Path:
    """A new empty folder below `parent` called `name`, or `name-2`, `name-3`... if that is taken."""
    return _claim(parent, name, lambda folder: folder)


def _claim(parent: Path, name: str, place: Callable[[Path], Path]) -> Path:
    """The first free folder; `place(folder)` is made at once, which keeps others from taking the same name."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            if folder.exists():
                continue
            with suppress(FileExistsError):
                place(folder).mkdir()
                # Whoever held the place may have finished, and so taken the folder, since we looked.
                if place(folder) == folder or not folder.exists():
                    return folder
                place(folder).rmdir()
    except OSError as error:
        raise CfclError(f"cannot write below {str(parent)!r}: {error.strerror}; choose another --out") from None
    raise CfclError(f"{str(parent)!r} holds 9,999 runs called {name!r}: choose another --out")


class Writer:
    """Writes one run to `<folder>.partial`, which becomes `<folder>` when all of it is there.

    After an error nothing stays; after an interruption or the loss of a worker the partial folder stays, with what
    had been measured.
    """

    def __init__(self, config: Config, out: Path) -> None:
        self.folder = _claim(out, f"{config.name}-{config.method}-s{config.seed}-{config.digest[:6]}", _partial)
        self.partial = _partial(self.folder)
        (self.partial / "config.toml").write_text(configs.to_toml(config), encoding="utf-8")
        self._metrics: IO[str] = (self.partial / "metrics.jsonl").open("w", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def row(self, row: Row) -> None:
        """Append one record."""
        self._metrics.write(dump(row) + "\n")
        self._metrics.flush()

    def json(self, name: str, content: object) -> None:
        """Write one JSON file."""
        (self.partial / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._metrics.close()
        if error is None:
            self.partial.replace(self.folder)
        elif not isinstance(error, KeyboardInterrupt | WorkerLost):
            shutil.rmtree(self.partial)


def dump(row: Row) -> str:
    """A record as one line; NaN and infinity are not numbers and may not pass."""
    return json.dumps(row, separators=(",", ":"), allow_nan=False)


def _partial(folder: Path) -> Path:
    return folder.with_name(folder.name + ".partial")


def _finished_below(path: Path) -> Iterator[Path]:
    return (file.parent for file in path.rglob("metrics.jsonl") if not file.parent.name.endswith(".partial"))
