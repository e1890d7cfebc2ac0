"""Run folders: what a run leaves on disk, and how it is read back. Nothing here is overwritten or half-written."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar

from cfcl import config as configs
from cfcl import reading, records
from cfcl.config import Config
from cfcl.errors import CfclError, Failed
from cfcl.files import remove_parts, write_atomically
from cfcl.records import Environment, Evaluation, Final, LinkCost, Pull, Record, Setup, Timings, Update, Upfront
from cfcl.runs import checkpoints
from cfcl.shown import command

CONFIG = "config.toml"
METRICS = "metrics.jsonl"
FAILED = "failed.txt"
LOCK = ".lock"
PARTIAL = ".partial"

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
    if not isinstance(folder, str | Path) or not reading.is_file(Path(folder) / METRICS):
        raise CfclError(
            f"{str(folder)!r} is not a run folder (it has no metrics.jsonl): give a folder that `cfcl run` wrote"
        )
    path = Path(folder)
    try:
        return _checked(
            Run(
                folder=path,
                config=_config(path / CONFIG),
                records=_records(path / METRICS),
                costs=_json(path / "costs.json", _costs),
                timings=_json(path / "timings.json", partial(records.read, Timings)),
                environment=_json(path / "environment.json", Environment.of),
            )
        )
    except (OSError, ValueError) as error:
        remedy = "run it again, or use the version of cfcl that wrote it"
        raise CfclError(f"run folder {str(path)!r} cannot be read: {error}; {remedy}") from None


def find(paths: list[Path], *, needed: bool = True) -> list[Run]:
    """The finished runs at or below `paths`, in order of their folders; at least one per path if they are `needed`."""
    folders: list[Path] = []
    for path in paths:
        try:
            found = sorted(_finished_below(path))
        except OSError as error:
            raise CfclError(f"cannot look below {str(path)!r}: {error}; give folders that `cfcl run` wrote") from None
        if not found and needed:
            raise CfclError(f"there is no finished run at or below {str(path)!r}: give folders that `cfcl run` wrote")
        folders += [folder for folder in found if folder not in folders]
    return [load(folder) for folder in folders]


def _claim(parent: Path, name: str) -> Path:
    """The first free folder below `parent` called `name`, or `name-2`, `name-3`...; its partial one is made at once,
    which keeps others from taking the same name.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            if folder.exists():
                continue
            with suppress(FileExistsError):
                _partial(folder).mkdir()
                # Whoever held the place may have finished, and so taken the folder, since we looked.
                if not folder.exists():
                    return folder
                _partial(folder).rmdir()
    except OSError as error:
        raise CfclError(f"cannot write below {str(parent)!r}: {error.strerror}; choose another --out") from None
    raise CfclError(f"{str(parent)!r} holds 9,999 runs called {name!r}: choose another --out")


class Writer:
    """Writes one run to `<folder>.partial`, which becomes `<folder>` when all of it is there.

    Whatever happens, what has been measured stays: a run that did not end is gone on with from its newest checkpoint.
    """

    def __init__(self, folder: Path, lock: IO[str], config: Config, *, new: bool) -> None:
        """Whoever holds the `lock` of a partial folder may write in it."""
        self.folder = folder
        self.partial = _partial(folder)
        self.config = config
        self._lock = lock
        remove_parts(self.partial)
        self._metrics: IO[bytes] = (self.partial / METRICS).open("a+b")
        self._digest = hashlib.sha256()
        self._worth = not new
        """Whether the folder holds anything that would be missed."""

    @classmethod
    def begin(cls, config: Config, out: Path) -> Self:
        """In a new folder below `out`."""
        folder = _claim(out, run_name(config))
        lock = _locked(_partial(folder))
        assert lock is not None, folder
        write_atomically(_partial(folder) / CONFIG, configs.to_toml(config).encode())
        return cls(folder, lock, config, new=True)

    @classmethod
    def find(cls, config: Config, out: Path) -> Self | None:
        """In the folder of an unfinished run of `config` below `out`, if there is one that nobody is at."""
        for folder in sorted(out.glob(f"{run_name(config)}*{PARTIAL}")):
            try:
                if same_run(_config(folder / CONFIG), config) and (lock := _locked(folder)):
                    return cls(_whole(folder), lock, config, new=False)
            except (CfclError, OSError, ValueError):
                continue  # whatever it is, it cannot be gone on with
        return None

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """In the folder of the unfinished run at `path`."""
        partial, config = unfinished(path)
        try:
            lock = _locked(partial)
            if lock is None:
                raise CfclError(f"another process is writing {str(partial)!r}: wait until it ends")
            return cls(_whole(partial), lock, config, new=False)
        except OSError as error:
            raise CfclError(f"cannot write to {str(partial)!r}: {error.strerror}; make it writable") from None

    def __enter__(self) -> Self:
        return self

    def keep(self, size: int, digest: str, *, step: int) -> tuple[Record, ...]:
        """The records in the first `size` bytes; later ones are dropped, and measured again.

        ValueError, before anything is changed, if these bytes are not those of `digest`, or not of a run before `step`.
        """
        self._metrics.seek(0)
        there = os.fstat(self._metrics.fileno()).st_size  # whoever asks for more gets no memory for it
        known = self._metrics.read(size) if size <= there else b""
        digested = hashlib.sha256(known)
        if len(known) != size or digested.hexdigest() != digest:
            raise ValueError(f"{METRICS} was changed after it")
        found = tuple(records.parse(line) for line in known.decode().splitlines())
        if step > 0:
            records.check((*found, Final(step - 1)))
        self._digest = digested
        self._metrics.truncate(size)
        return found

    def record(self, record: Record) -> None:
        """Append one record."""
        line = (record.to_line() + "\n").encode()
        self._digest.update(line)
        self._metrics.write(line)
        self._metrics.flush()
        self._worth |= isinstance(record, Evaluation)

    def position(self) -> tuple[int, str]:
        """How many bytes of records are on disk for good, and their digest."""
        os.fsync(self._metrics.fileno())
        return self._metrics.seek(0, os.SEEK_END), self._digest.hexdigest()

    def json(self, name: str, content: object) -> None:
        """Write one JSON file."""
        write_atomically(self.partial / name, (json.dumps(content, indent=1) + "\n").encode())

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While the run goes on; at the end the folder is a finished one, or says why not."""
        (self.partial / FAILED).unlink(missing_ok=True)
        try:
            yield
            self._metrics.close()
            self.partial.replace(self.folder)
            tidy(self.folder)
        except BaseException as error:
            if isinstance(error, OSError) and not isinstance(error, ConnectionError):
                reason = f"{error.strerror or error}: make room, or make it writable"
                raise self._explained(Failed(f"cannot write to {str(self.partial)!r}: {reason}")) from error
            raise self._explained(error) from error.__cause__

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # what a full disk did not take
            self._metrics.close()
        if error is not None and not self._worth:
            shutil.rmtree(self.partial, ignore_errors=True)
        self._lock.close()

    def _explained(self, error: BaseException) -> BaseException:
        """`error`, which says how the run goes on; in the folder it says why it stopped."""
        if self._worth:
            if not isinstance(error, KeyboardInterrupt):
                with suppress(OSError):
                    (self.partial / FAILED).write_text(f"{error}\n", encoding="utf-8")
            go_on = command("cfcl", "resume", str(self.partial))
            error.add_note(f"what was measured is kept; to go on: {go_on}")
        return error


def unfinished(path: Path) -> tuple[Path, Config]:
    """The folder and the config of an unfinished run, given with or without its ending."""
    folder = _whole(path)
    partial = _partial(folder)
    if not reading.is_file(partial / CONFIG):
        what = "is finished" if reading.is_file(folder / METRICS) else "is no run folder"
        raise CfclError(f"{str(path)!r} {what}, so there is nothing to go on with: `cfcl runs` lists what there is")
    try:
        return partial, _config(partial / CONFIG)
    except (OSError, ValueError) as error:
        remedy = "restore it, or remove that folder and run it from the start"
        raise CfclError(f"{str(partial / CONFIG)!r} cannot be read: {error}; {remedy}") from None


def unfinished_at(path: Path) -> Path | None:
    """The folder of the unfinished run at `path`, given with or without its ending; None if there is none."""
    folder = _whole(path)
    finished = reading.is_file(folder / METRICS)
    return _partial(folder) if not finished and reading.is_file(_partial(folder) / CONFIG) else None


def config_at(path: Path) -> Config:
    """The config of the run at `path`, finished or not."""
    file = (unfinished_at(path) or path) / CONFIG
    if not reading.is_file(file):
        raise CfclError(f"{str(path)!r} is no run folder (it has no {CONFIG}): give a folder that `cfcl run` wrote")
    try:
        return _config(file)
    except (OSError, ValueError) as error:
        raise CfclError(f"{str(file)!r} cannot be read: {error}; restore it") from None


def tidy(folder: Path) -> None:
    """Remove what a finished run no longer needs."""
    for file in (*checkpoints.files(folder), folder / FAILED, folder / LOCK):
        file.unlink(missing_ok=True)


def tidied(path: Path) -> bool:
    """Whether the run at `path`, given with or without its ending, is finished; what it no longer needs is gone."""
    folder = _whole(path)
    if not reading.is_file(folder / METRICS) or reading.exists(_partial(folder)):
        return False
    tidy(folder)
    return True


def run_name(config: Config) -> str:
    """What the folder of a run is called; with a number, if there are several."""
    return f"{config.name}-{config.method}-s{config.seed}-{config.digest[:6]}"


def same_run(one: Config, other: Config) -> bool:
    """Whether two configs leave the same records behind."""
    return differing(one, other) == []


def differing(one: Config, other: Config) -> list[str]:
    """The settings that make two configs leave other records behind."""
    pairs = zip(configs.fields(one), configs.fields(other), strict=True)
    changed = [f"{section}.{key}".lstrip(".") for (section, key, a, _), (_, _, b, _) in pairs if a != b]
    return [name for name in changed if name != "data.dir" and not name.startswith("checkpoint.")]


def _locked(partial: Path) -> IO[str] | None:
    """The lock of a partial folder; None if another process has it, or has just made the folder a finished one."""
    lock = open(partial / LOCK, "a", encoding="utf-8", opener=reading.open_at_once)  # noqa: SIM115  # it is kept
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (partial / LOCK).stat().st_ino == os.fstat(lock.fileno()).st_ino:
            return lock
    except OSError:
        pass
    lock.close()
    return None


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
    return folder.parent / f"{folder.name}{PARTIAL}"


def _whole(path: Path) -> Path:
    named = path.resolve() if path.name in ("", "..") else path
    return named.parent / (named.name.removesuffix(PARTIAL) or named.name)


def _finished_below(path: Path) -> Iterator[Path]:
    return (file.parent for file in path.rglob(METRICS) if not file.parent.name.endswith(PARTIAL))
