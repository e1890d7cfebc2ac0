"""Several runs at once, each in a process of its own that reports by JSON lines."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from cfcl import config as configs
from cfcl.config import Config

Row = dict[str, Any]
Watch = Callable[[int, Row], None]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a folder, or with an error."""

    config: Config
    folder: Path | None
    error: str = ""


@dataclass
class _Children:
    """The processes under way, so that an interruption can end them all."""

    running: set[subprocess.Popen[str]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: bool = False

    def start(self, command: Sequence[str], complaints: IO[str]) -> subprocess.Popen[str] | None:
        with self.lock:
            if self.stopped:
                return None
            # One thread a process: arithmetic threads of several processes would fight for the cores.
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
            self.running.add(child)
            return child

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            for child in self.running:
                child.terminate()


def run_many(runs: Sequence[Config], *, out: Path, num_workers: int, device: str, watch: Watch) -> list[Outcome]:
    """Run all configs, `num_workers` at a time; a failed run is reported and does not stop the others."""
    children = _Children()

    def one(position: int) -> Outcome:
        return _run(children, runs[position], out, device, lambda row: watch(position, row))

    with ThreadPoolExecutor(max_workers=num_workers) as pool:
        try:
            return list(pool.map(one, range(len(runs))))
        except BaseException:
            children.stop()
            raise


def _run(children: _Children, config: Config, out: Path, device: str, watch: Callable[[Row], None]) -> Outcome:
    command = [sys.executable, "-m", "cfcl", "run", "-", "--json", "--out", str(out), "--device", device]
    command += ["--workers", "1"]
    # Complaints go to a file: a pipe that nobody reads while the records flow could fill up and block the child.
    with TemporaryFile("w+", encoding="utf-8") as complaints:
        child = children.start(command, complaints)
        return (
            Outcome(config, None, "not started")
            if child is None
            else _follow(children, child, config, complaints, watch)
        )


def _follow(
    children: _Children,
    child: subprocess.Popen[str],
    config: Config,
    complaints: IO[str],
    watch: Callable[[Row], None],
) -> Outcome:
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(configs.to_toml(config))
        child.stdin.close()
        folder = None
        for line in child.stdout:
            row = json.loads(line)
            folder = Path(row["folder"]) if row["kind"] == "done" else folder
            watch(row)
    with children.lock:
        children.running.discard(child)
    complaints.seek(0)
    complaint = complaints.read().strip().splitlines()
    if child.returncode == 0 and folder is not None:
        return Outcome(config, folder)
    return Outcome(config, None, complaint[-1] if complaint else f"ended with code {child.returncode}")
