"""One run in a process of its own, timed by itself; prints one line of JSON.

python benchmarks/one.py fashion-mnist-study --workers 2 --set train.steps=50
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import Any

import torch

from cfcl import config
from cfcl.records import Evaluation, Update
from cfcl.sim import allocator, engines
from cfcl.sim import simulation as simulations
from cfcl.sim.group import Group


def time_collectives() -> list[float]:
    """Seconds that this process will spend in collectives: waiting for the others, and what little is carried."""
    waited: list[float] = []
    talking = Group._talking

    @contextmanager
    def timed(group: Group) -> Iterator[None]:
        begun = time.perf_counter()
        with talking(group):
            yield
        waited.append(time.perf_counter() - begun)

    setattr(Group, "_talking", timed)  # noqa: B010
    return waited


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("preset")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--engine", choices=["sharded", "loop"], default="sharded")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--default-threads", action="store_true", help="the loop on as many threads as torch likes")
    options = parser.parse_args()
    if options.default_threads:
        vars(simulations)["single_thread"] = nullcontext
    allocator.keep_memory()  # as the command does
    wanted = config.load(options.preset, options.overrides)
    waited = time_collectives()
    last: dict[str, Any] = {}
    active: list[float] = []
    with engines.start(wanted, workers=options.workers, engine=options.engine) as simulation:
        for row in simulation.rows():
            last = row.to_dict() if isinstance(row, Evaluation) else last
            active += [row.active] if isinstance(row, Update) else []
    timings = asdict(simulation.clocks)
    updates = wanted.train.steps * wanted.partition.num_devices
    busy = timings["total"] - timings["evaluation"]
    found = {
        "seconds": busy,
        "per_update_ms": 1e3 * busy / updates,
        "evaluation": timings["evaluation"],
        "exchange": timings["exchange"],
        "collectives": sum(waited),
        "active": sum(active) / len(active),
        "threads": torch.get_num_threads() if options.default_threads else 1,
        # of this process alone; workers' is counted where they are waited for
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "peak_mib_worker": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        "bytes": {key: value for key, value in last.items() if key.startswith("bytes_")},
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
