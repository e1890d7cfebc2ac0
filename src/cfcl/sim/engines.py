"""Which engine runs a simulation, in how many processes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

from torch import nn

from cfcl.config import Config
from cfcl.data.datasets import Dataset
from cfcl.errors import CfclError
from cfcl.exchange import policies
from cfcl.objectives import Loss
from cfcl.sim import group
from cfcl.sim.group import ALONE, Group
from cfcl.sim.simulation import Simulation, never
from cfcl.sim.workers import hired
from cfcl.sim.world import check_same

Engine = Literal["sharded", "loop"]


@contextmanager
def start(
    config: Config,
    *,
    device: str = "cpu",
    dataset: Dataset | None = None,
    module: nn.Module | None = None,
    loss: Loss | None = None,
    workers: int | None = None,
    engine: Engine = "sharded",
    trace: Callable[[str], None] | None = None,
    saved: bool = False,
    stop: Callable[[], int] = never,
) -> Iterator[Simulation]:
    """A simulation ready to run; the processes that it needs are there inside the context and nowhere else."""
    here = partial(Simulation, config, dataset=dataset, module=module, loss=loss, trace=trace, saved=saved, stop=stop)
    # A fresh process can be told a config, not objects that live in this one.
    portable = dataset is None and module is None and loss is None and policies.is_portable(config.exchange.method)
    if engine == "loop":
        yield here(torch_device=device, reference=True)
        return
    if group.launched():
        with group.joined() as ours:
            where = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if device == "cuda" else device
            simulation = here(torch_device=where, group=ours)
            check_same(simulation.world, ours)
            yield simulation
        return
    size = num_processes(config, workers, alone=not portable or device != "cpu")
    if size == 1:
        yield here(torch_device=device)
        return
    simulation = here(torch_device=device, group=Group(0, size))  # refuses what cannot be first
    with hired(config, size, device, traced=trace is not None, saved=saved) as simulation.group:
        check_same(simulation.world, simulation.group)
        yield simulation


def check(config: Config, device: str) -> None:
    """Refuse a run that cannot be."""
    Simulation(config, torch_device=device, group=ALONE)


def num_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def num_processes(config: Config, workers: int | None, *, alone: bool) -> int:
    """How many processes share the devices; `alone` is a run that cannot be spread."""
    devices = config.partition.num_devices
    if workers is None:
        return 1 if alone else min(num_cores(), devices)
    if workers > devices:
        raise CfclError(
            f"{workers} workers cannot share {devices} devices: lower --workers or raise partition.num_devices"
        )
    if workers > 1 and alone:
        raise CfclError(
            f"{workers} workers cannot share objects of this process (a dataset, a module, a loss, a registered policy "
            "or a GPU): leave workers out, or start the same script under torchrun"
        )
    return workers
