"""Workers on this machine: processes that share one simulation with the process that started them, and end with it."""

import json
import os
import shutil
import signal
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
from numpy.typing import NDArray

from cfcl import config as configs
from cfcl.config import Config
from cfcl.errors import CfclError, Interrupted, WorkerLost, fate
from cfcl.sim.group import Group, met

PATIENCE = 10.0
"""Seconds a worker has to end by itself."""
GLANCE = 0.2
"""Seconds between two looks at whether the parent is still there."""
LAST_WORDS = 5.0
"""Seconds within which a worker that broke the connection will have ended."""

Board = NDArray[np.int64]
"""[workers, 2]: the device and the step each worker is at, shared by all of them."""


@dataclass(frozen=True)
class _Worker:
    process: subprocess.Popen[bytes]
    complaints: IO[str]


@contextmanager
def hired(
    config: Config, size: int, torch_device: str, *, traced: bool = False, saved: bool = False
) -> Iterator[Group]:
    """A group of this process, which leads, and `size` - 1 new ones; none of them is left afterwards."""
    settings = configs.to_toml(config)
    with tempfile.TemporaryDirectory(prefix="cfcl-") as name:
        folder = Path(name)
        order = {
            "config": settings,
            "device": torch_device,
            "folder": name,
            "leader": os.getpid(),
            "size": size,
            "traced": traced,
            "saved": saved,
        }
        board = _board(folder, size, "w+")
        board[:] = -1
        workers: list[_Worker] = []

        def explain(error: RuntimeError) -> Exception:
            return _explained(error, workers, board, config)

        try:
            for rank in range(1, size):
                workers.append(_start({**order, "rank": rank}, folder))  # noqa: PERF401  # all that began are known
            while not all(_ready(folder, rank).exists() for rank in range(1, size)):
                if any(worker.process.poll() is not None for worker in workers):
                    raise explain(RuntimeError("a worker ended before it began"))
                time.sleep(0.02)
            with met(Group(0, size, explain=explain), folder / "meeting") as group:
                yield group
        finally:
            _dismiss(workers)


def serve(order: dict[str, Any]) -> None:
    """A worker's whole life."""
    from cfcl.sim import allocator
    from cfcl.sim.simulation import Simulation
    from cfcl.sim.world import check_same

    allocator.keep_memory()
    rank, size, folder = order["rank"], order["size"], Path(order["folder"])
    board = _board(folder, size, "r+")

    def watch(device: int, step: int) -> None:
        board[rank] = device, step

    config = configs.parse(order["config"], source="the leader")
    _ready(folder, rank).touch()
    with met(Group(rank, size), folder / "meeting") as group:
        # Lines come out at the leader alone, but every process has to give it its own.
        trace = (lambda line: None) if order["traced"] else None
        simulation = Simulation(
            config, torch_device=order["device"], group=group, watch=watch, trace=trace, saved=order["saved"]
        )
        check_same(simulation.world, group)
        with suppress(Interrupted):  # the leader says so
            for _ in simulation.rows():
                pass


def end_with(parent: int, rubbish: str | None = None) -> None:
    """End this process as soon as `parent` is gone, however that ended and whoever else holds its pipes.

    The folder `rubbish` goes with it: who is killed cannot remove it.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(GLANCE)
        deadline = time.monotonic() + PATIENCE
        # Other threads, and other workers, may still be writing there.
        while rubbish is not None and Path(rubbish).exists() and time.monotonic() < deadline:
            shutil.rmtree(rubbish, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _ready(folder: Path, rank: int) -> Path:
    return folder / f"ready-{rank}"


def _board(folder: Path, size: int, mode: Any) -> Board:
    return np.memmap(folder / "board", dtype=np.int64, mode=mode, shape=(size, 2))


def _start(order: dict[str, Any], folder: Path) -> _Worker:
    orders = folder / f"order-{order['rank']}"
    orders.write_text(json.dumps(order), encoding="utf-8")
    # Complaints go to a file: a pipe that nobody reads could fill up and block the worker.
    complaints = (folder / f"worker-{order['rank']}").open("w+", encoding="utf-8", errors="replace")
    try:
        process = subprocess.Popen(
            # -P: the current folder is no place for modules
            [sys.executable, "-P", "-m", "cfcl.sim.workers", str(orders)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # an interruption is the leader's to handle
        )
    except OSError as error:
        complaints.close()
        raise CfclError(f"worker {order['rank']} cannot be started: {error.strerror}; use fewer --workers") from None
    return _Worker(process, complaints)


def _dismiss(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(PATIENCE)
        worker.process.kill()
        worker.process.wait()
        worker.complaints.close()


def _explained(error: Exception, workers: list[_Worker], board: Board, config: Config) -> Exception:
    """How the worker ended that others, and this process, now miss; what it refused, if it did."""
    deadline = time.monotonic() + LAST_WORDS
    while time.monotonic() < deadline:
        for rank, worker in enumerate(workers, start=1):
            if worker.process.poll() not in (None, 0):
                return _obituary(rank, worker, board, config)
        time.sleep(0.02)
    return WorkerLost(f"the workers are out of reach ({str(error).splitlines()[0]:.200}): run again")


def _obituary(rank: int, worker: _Worker, board: Board, config: Config) -> CfclError:
    worker.complaints.seek(0)
    last = worker.complaints.read().strip().splitlines()[-1:]
    if worker.process.returncode == CfclError.exit_code:
        return CfclError(*last)
    device, step = board[rank].tolist()
    own = Group(rank, len(board)).share(config.partition.num_devices)
    where = "before its first update" if device < 0 else f"at step {step}, device {device}"
    # Who is killed says nothing: what stands there is about something else.
    reason = f" ({last[0]})" if last and worker.process.returncode > 0 else ""
    return WorkerLost(
        f"worker {rank} (devices {own[0]} to {own[-1]}) {fate(worker.process.returncode)} {where}{reason}: run again, "
        "with fewer --workers if memory ran out"
    )


def main() -> None:
    """Entry point of a worker: its orders are in the file that it is given."""
    order = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    end_with(order["leader"], order["folder"])
    try:
        serve(order)
        signal.pause()  # while the leader writes and draws, somebody has to tidy up should it be killed
    except WorkerLost:
        signal.pause()  # whoever was lost is to be named and not this one: its leader ends it, or `end_with` does
    except CfclError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception:
        time.sleep(3 * GLANCE)  # it may be the leader's end that is felt here: then `end_with` has to tidy up first,
        if os.getppid() != order["leader"]:  # and ends this process when it has, however long that takes
            signal.pause()
        raise


if __name__ == "__main__":
    main()
