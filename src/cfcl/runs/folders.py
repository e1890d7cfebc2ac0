"""Run folders: what a run leaves on disk, and how it is read back. Nothing here is overwritten or half-written."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from os.path import isfile  # which says False, not why, of a name that can be none
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar

from cfcl import config as configs
from cfcl import reading, records
from cfcl.config import Config
from cfcl.errors import CfclError, WorkerLost
from cfcl.records import Environment, Evaluation, Final, LinkCost, Pull, Record, Setup, Timings, Update, Upfront

R = TypeVar("R", bound=Record)
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """A finished run, read from its folder."""

    folder: Path
    config: Config
    records: tuple[Record, ...]
    """Every record, in order."""
    costs: tuple[LinkCost, ...]
    timings: Timings
    environment: Environment

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """The records of one kind."""
        return tuple(record for record in self.records if isinstance(record, kind))

    @property
    def setup(self) -> Setup:
        """What was fixed before the first step."""
        return self.of(Setup)[0]

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """The learning curve; there is at least one."""
        return self.of(Evaluation)

    @property
    def upfront(self) -> Upfront | None:
        """What was paid at t = 0, if anything was."""
        return next(iter(self.of(Upfront)), None)

    @property
    def updates(self) -> tuple[Update, ...]:
        """The local updates that were logged."""
        return self.of(Update)

    @property
    def pulls(self) -> tuple[Pull, ...]:
        """What traced receivers pulled."""
        return self.of(Pull)

    @property
    def final(self) -> Final:
        """The last record."""
        return self.of(Final)[-1]


def load(folder: str | Path) -> Run:
    """The run in `folder`."""
    if not isinstance(folder, str | Path) or not isfile(Path(folder) / "metrics.jsonl"):  # noqa: PTH113
        raise CfclError(
            f"{str(folder)!r} is not a run folder (it has no metrics.jsonl): give a folder that `cfcl run` wrote"
        )
    path = Path(folder)
    try:
        return _checked(
            Run(
                folder=path,
                config=_config(path / "config.toml"),
                records=_records(path / "metrics.jsonl"),
                costs=_json(path / "costs.json", _costs),
                timings=_json(path / "timings.json", partial(records.read, Timings)),
                environment=_json(path / "environment.json", Environment.of),
            )
        )
    except (OSError, ValueError) as error:
        remedy = "run it again, or use the version of cfcl that wrote it"
        raise CfclError(f"run folder {str(path)!r} cannot be read: {error}; {remedy}") from None


def find(paths: list[Path]) -> list[Run]:
    """The finished runs at or below `paths`, in order of their folders."""
    folders: list[Path] = []
    for path in paths:
        try:
            found = [path] if (path / "metrics.jsonl").is_file() else sorted(_finished_below(path))
        except OSError as error:
            raise CfclError(f"cannot look below {str(path)!r}: {error}; give folders that `cfcl run` wrote") from None
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

    def record(self, record: Record) -> None:
        """Append one record."""
        self._metrics.write(record.to_line() + "\n")
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


def _config(file: Path) -> Config:
    try:
        return configs.parse(reading.text(file), source=str(file))
    except CfclError as error:
        remedy = "edit that setting in config.toml, or use the version of cfcl that wrote it"
        raise CfclError(f"{error}; {remedy}") from None


def _records(file: Path) -> tuple[Record, ...]:
    """At least a setup, an evaluation and a final record: a finished run has them."""
    found = []
    for number, line in enumerate(reading.text(file).removesuffix("\n").split("\n"), start=1):
        with _named(f"{file.name} line {number}"):
            found.append(records.parse(line))
    for kind in (Setup, Evaluation, Final):
        if not any(isinstance(record, kind) for record in found):
            raise ValueError(f"{file.name} holds no record of kind {kind.KIND}")
    return tuple(found)


def _checked(run: Run) -> Run:
    """A run whose files are about the same devices and steps."""
    with _named("metrics.jsonl"):
        records.check(run.records)
        for name, told, seen in (
            ("partition.num_devices", run.config.partition.num_devices, len(run.setup.points)),
            ("train.steps", run.config.train.steps, run.final.step),
        ):
            if told != seen:
                raise ValueError(f"it is of {seen}, but config.toml has {name}={told}")
    with _named("costs.json"):
        records.check(run.records, run.costs)
    return run


def _json(file: Path, made: Callable[[object], T]) -> T:
    with _named(file.name):
        return made(records.from_json(reading.text(file)))


def _costs(rows: object) -> tuple[LinkCost, ...]:
    if not isinstance(rows, list):
        raise ValueError(f"{rows!r:.60} is not a list of costs")
    return tuple(records.read(LinkCost, row) for row in rows)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Says where what is wrong was found."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _partial(folder: Path) -> Path:
    return folder.with_name(folder.name + ".partial")


def _finished_below(path: Path) -> Iterator[Path]:
    return (file.parent for file in path.rglob("metrics.jsonl") if not file.parent.name.endswith(".partial"))
