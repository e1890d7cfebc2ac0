"""What is fixed before the first step, and what both engines share."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from cfcl import rng, schedule, topology
from cfcl.config import Config
from cfcl.data import datasets, partition
from cfcl.data.datasets import Dataset
from cfcl.device import Lacks, Setting, StepReport
from cfcl.errors import CfclError
from cfcl.exchange import links, policies
from cfcl.exchange.cost import Ledger
from cfcl.models import Encoder
from cfcl.topology import Graph

Row = dict[str, Any]


@dataclass(frozen=True)
class World:
    """What is fixed before the first step."""

    setting: Setting
    dataset: Dataset
    parts: tuple[torch.Tensor, ...]
    graph: Graph

    @property
    def config(self) -> Config:
        """The run's config."""
        return self.setting.config

    def ledger(self) -> Ledger:
        """An empty account of the run's costs."""
        cost = self.config.cost
        charged = cost.charged_parameters or self.setting.encoder.num_parameters
        return Ledger(cost, charged, links.rates(cost.rates_file, self.graph))

    def evaluates(self, step: int) -> bool:
        """Whether the aggregation at `step` is followed by an evaluation."""
        number, rest = divmod(step, self.config.aggregation.period)
        return step == self.config.train.steps or (rest == 0 and number % self.config.evaluation.every == 0)

    def logs(self, step: int) -> bool:
        """Whether the update at `step` leaves a record."""
        return step % self.config.evaluation.log_every == 0 or step == self.config.train.steps - 1

    def setup_row(self) -> Row:
        """The first record."""
        labels, encoder = self.dataset.train_labels, self.setting.encoder
        return {
            "kind": "setup",
            "dataset": self.dataset.name,
            "encoder": encoder.name,
            "num_parameters": encoder.num_parameters,
            "points": [len(part) for part in self.parts],
            "labels": None if labels is None else [sorted(set(labels[part].tolist())) for part in self.parts],
            "edges": self.graph.edges,
            "positions": self.graph.positions,
        }


@dataclass
class Timings:
    """Wall-clock figures, kept apart from the deterministic records."""

    selection: list[tuple[int, float]] = field(default_factory=list)
    """Per exchange, the slowest device's time for K-means and importance."""
    exchange: float = 0.0
    """Choosing, moving and taking in reserves and items, waiting for other processes included."""
    evaluation: float = 0.0
    total: float = 0.0
    """From the first evaluation on; without the start of processes and libraries."""

    @contextmanager
    def counting(self, what: Literal["exchange", "evaluation"]) -> Iterator[None]:
        """Counts the time inside."""
        begun = time.perf_counter()
        yield
        setattr(self, what, getattr(self, what) + time.perf_counter() - begun)


def build(
    config: Config, *, torch_device: str = "cpu", dataset: Dataset | None = None, module: nn.Module | None = None
) -> World:
    """Data, partition, graph, policy and initial model of a run; every impossible wish is refused here.

    A `dataset` takes the place of the one that `config.data` names, a `module` that of `config.model.encoder`.
    """
    where = _torch_device(torch_device)
    policy = policies.find(config.exchange.method)
    dataset = datasets.load(config.data) if dataset is None else dataset
    parts = partition.split(
        config.partition,
        dataset.train_labels,
        len(dataset.train_images),
        rng.stream(config.seed, "partition"),
        devices=dataset.train_devices,
    )
    graph = topology.build(config.graph, config.partition.num_devices, rng.stream(config.seed, "graph"))
    setting = Setting(
        config=config,
        encoder=Encoder(config.model, dataset.image_shape, seed=config.seed, device=where, module=module),
        policy=policy,
        schedule=schedule.build(config, once=policy.once),
        budgets=links.budgets(config, graph),
        lacks=_lacks(config, dataset, parts) if policy.cheats else None,
    )
    return World(setting, dataset, parts, graph)


def _lacks(config: Config, dataset: Dataset, parts: Sequence[torch.Tensor]) -> Lacks:
    """What the oracle asks; a point's label is known outside the devices only."""
    labels = dataset.train_labels
    if labels is None or config.exchange.candidates == "relay":
        raise CfclError(
            f"exchange.method={config.exchange.method!r} looks at the labels of devices' own points: give labelled "
            "data, and no exchange.candidates='relay'"
        )

    def lacks(transmitter: int, positions: torch.Tensor, receiver: int) -> torch.Tensor:
        wanted = labels[parts[transmitter][positions.cpu()]]
        return (~torch.isin(wanted, labels[parts[receiver]])).to(positions.device)

    return lacks


def train_row(step: int, reports: Sequence[StepReport], margins: Sequence[float]) -> Row:
    """The record of one update: means over all devices, in their order."""
    rows = [asdict(report) for report in reports]
    means = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}
    return {"kind": "train", "step": step, **means, "margin": sum(margins) / len(margins)}


@contextmanager
def single_thread() -> Iterator[None]:
    """One thread for arithmetic: the bits of a sum may depend on how many share it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _torch_device(name: str) -> torch.device:
    try:
        where = torch.device(name)
        torch.zeros(1, device=where)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise CfclError(f"device {name!r} cannot be used: {reason}; choose cpu, or a device this torch has") from None
    return where
