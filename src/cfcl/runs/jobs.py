"""Several runs at once, in processes that do one after another and report by JSON lines."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryFile
from typing import IO

from cfcl import config as configs
from cfcl import records
from cfcl.config import Config
from cfcl.errors import fate
from cfcl.records import Done, Failed, Record

Watch = Callable[[int, Record], None]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a folder, or with an error."""

    config: Config
    folder: Path | None
    error: str = ""


def run_many(
    runs: Sequence[Config], *, out: Path, num_workers: int, device: str, watch: Watch, plotted: bool = True
) -> list[Outcome]:
    """Run all configs, `num_workers` at a time; a failed run is reported and does not stop the others.

    `watch` sees every record with the position of its run; the last one of a run is `Done` or `Failed`.
    """
    # -P: the current folder is no place for modules
    command = [sys.executable, "-P", "-m", "cfcl.runs.job", "--parent", str(os.getpid()), "--out", str(out)]
    processes = _Pool([*command, "--device", device, *([] if plotted else ["--no-plots"])])

    def one(position: int) -> Outcome:
        return _follow(processes, runs[position], lambda record: watch(position, record))

    with ThreadPoolExecutor(max_workers=num_workers) as pool:
        try:
            return list(pool.map(one, range(len(runs))))
        finally:
            processes.stop()


class _Process:
    """One process. Complaints go to a file: a pipe that nobody reads while records flow could fill up and block it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._complaints: IO[str] = TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        # One thread per process: arithmetic threads of several processes would fight for the cores.
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )

    def records(self, config: Config) -> Iterator[Record]:
        """What the process says about one run; it ends with `Done` or `Failed`, also if the process died."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        try:
            print(json.dumps(configs.to_toml(config)), file=self.popen.stdin, flush=True)
        except BrokenPipeError:
            yield self._died()
            return
        for line in self.popen.stdout:
            if not line.endswith("\n"):
                break  # its last word, cut off
            record = records.parse(line)
            yield record
            if isinstance(record, Done | Failed):
                return
        yield self._died()

    def _died(self) -> Failed:
        code = self.popen.wait()
        if code < 0:
            perhaps = ": perhaps memory ran out" if code == -signal.SIGKILL else ""
            return Failed(f"its process {fate(code)}{perhaps}")
        self._complaints.seek(0)
        complaint = self._complaints.read().strip().splitlines()
        return Failed(complaint[-1] if complaint else f"its process {fate(code)}")

    def end(self) -> None:
        """Wait until the process, which was told to stop, has saved its run; only then close the pipes."""
        self.popen.wait()
        with self.popen:
            self._complaints.close()


class _Pool:
    """The processes there are, so that all can be ended."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        self._all: set[_Process] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def take(self) -> _Process | None:
        """A process that waits for a run; None once they have been stopped."""
        with self._lock:
            if self._stopped:
                return None
            if not self._idle.empty():
                return self._idle.get()
            process = _Process(self._command)
            self._all.add(process)
            return process

    def give_back(self, process: _Process) -> None:
        """`process` is free again, unless it died."""
        with self._lock:
            if process.popen.poll() is None:
                self._idle.put(process)

    def stop(self) -> None:
        """End every process, and start none any more."""
        with self._lock:
            self._stopped = True
            for process in self._all:
                process.popen.terminate()
            for process in self._all:
                process.end()


def _follow(processes: _Pool, config: Config, watch: Callable[[Record], None]) -> Outcome:
    process = processes.take()
    if process is None:
        return Outcome(config, None, "not started")
    for record in process.records(config):
        watch(record)
    processes.give_back(process)
    if isinstance(record, Done):
        return Outcome(config, Path(record.folder))
    assert isinstance(record, Failed)
    return Outcome(config, None, record.error)
