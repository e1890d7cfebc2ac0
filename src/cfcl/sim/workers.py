"""Workers on this machine: processes that share one simulation with the process that started them, and end with it."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from cfcl import config as configs
from cfcl.config import Config
from cfcl.errors import Interrupted, WorkerLost
from cfcl.sim.group import Group

LOCALHOST = "127.0.0.1"
PATIENCE = 10.0
"""Seconds a worker has to end by itself."""

Board = NDArray[np.int64]
"""[workers, 2]: the device and the step each worker is at, shared by all of them."""


@dataclass(frozen=True)
class _Worker:
    process: subprocess.Popen[str]
    complaints: IO[str]


@contextmanager
def hired(
    config: Config, size: int, torch_device: str, *, traced: bool = False, saved: bool = False
) -> Iterator[Group]:
    """A group of this process, which leads, and `size` - 1 new ones; none of them is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="cfcl-") as folder:
        path = Path(folder) / "board"
        board = _board(path, size, "w+")
        board[:] = -1
        store = dist.TCPStore(LOCALHOST, 0, size, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        order = {
            "config": configs.to_toml(config),
            "device": torch_device,
            "board": str(path),
            "port": store.port,
            "traced": traced,
            "saved": saved,
        }
        workers = [_start({**order, "rank": rank, "size": size}, Path(folder)) for rank in range(1, size)]

        def explain(error: RuntimeError) -> Exception:
            return _explained(error, workers, board, config)

        try:
            while not store.check([_ready(rank) for rank in range(1, size)]):
                if any(worker.process.poll() is not None for worker in workers):
                    raise explain(RuntimeError("a worker ended before it began"))
                time.sleep(0.02)
            dist.init_process_group("gloo", store=store, rank=0, world_size=size)
            yield Group(0, size, explain=explain)
        finally:
            _dismiss(workers)
            if dist.is_initialized():
                dist.destroy_process_group()


def serve(order: dict[str, Any]) -> None:
    """A worker's whole life."""
    from cfcl.sim import allocator
    from cfcl.sim.simulation import Simulation

    allocator.keep_memory()
    threading.Thread(target=_end_with_leader, daemon=True).start()
    rank, size = order["rank"], order["size"]
    board = _board(Path(order["board"]), size, "r+")

    def watch(device: int, step: int) -> None:
        board[rank] = device, step

    config = configs.parse(order["config"], source="the leader")
    store = dist.TCPStore(LOCALHOST, order["port"], size, is_master=False)  # type: ignore[attr-defined]
    store.set(_ready(rank), "")
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    # Lines come out at the leader alone, but every process has to give it its own.
    trace = (lambda line: None) if order["traced"] else None
    simulation = Simulation(
        config,
        torch_device=order["device"],
        group=Group(rank, size),
        watch=watch,
        trace=trace,
        saved=order["saved"],
    )
    with suppress(Interrupted):  # the leader says so
        for _ in simulation.rows():
            pass
    dist.destroy_process_group()


def _ready(rank: int) -> str:
    return f"ready/{rank}"


def _board(path: Path, size: int, mode: Any) -> Board:
    return np.memmap(path, dtype=np.int64, mode=mode, shape=(size, 2))


def _start(order: dict[str, Any], folder: Path) -> _Worker:
    # Complaints go to a file: a pipe that nobody reads could fill up and block the worker.
    complaints = (folder / f"worker-{order['rank']}").open("w+", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "cfcl.sim.workers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=complaints,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,  # an interruption is the leader's to handle
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    return _Worker(process, complaints)


def _end_with_leader() -> None:
    """The leader holds the other end of standard input for as long as it lives."""
    sys.stdin.read()
    os._exit(1)


def _dismiss(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(PATIENCE)
        worker.process.kill()
        worker.process.wait()
        assert worker.process.stdin is not None
        with suppress(OSError):
            worker.process.stdin.close()
        worker.complaints.close()


def _explained(error: Exception, workers: list[_Worker], board: Board, config: Config) -> Exception:
    """The error of whichever worker ended first, if one did."""
    for rank, worker in enumerate(workers, start=1):
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(1.0)
        if worker.process.returncode:
            return WorkerLost(_obituary(rank, worker, board, config))
    return error


def _obituary(rank: int, worker: _Worker, board: Board, config: Config) -> str:
    code = worker.process.returncode
    how = f"was ended by signal {-code}" if code < 0 else f"failed with code {code}"
    device, step = board[rank].tolist()
    own = Group(rank, len(board)).share(config.partition.num_devices)
    where = "before its first update" if device < 0 else f"at step {step}, device {device}"
    worker.complaints.seek(0)
    last = worker.complaints.read().strip().splitlines()[-1:]
    reason = f" ({last[0]})" if last else ""
    return (
        f"worker {rank} (devices {own[0]} to {own[-1]}) {how} {where}{reason}: run again, with fewer --workers if "
        "memory ran out"
    )


if __name__ == "__main__":  # one process of a simulation; its orders are a line of JSON on standard input
    serve(json.loads(sys.stdin.readline()))
