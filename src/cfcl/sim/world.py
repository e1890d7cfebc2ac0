"""What is fixed before the first step, and what both engines share."""

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from cfcl import objectives, rng, schedule, topology
from cfcl.config import Config
from cfcl.data import datasets, fit, partition
from cfcl.data.datasets import Dataset
from cfcl.data.splits import with_validation
from cfcl.device import Lacks, Setting
from cfcl.errors import CfclError
from cfcl.exchange import links, policies
from cfcl.exchange.cost import Ledger
from cfcl.models import Encoder, usable_device
from cfcl.objectives import Loss
from cfcl.protocol import outages, releases
from cfcl.protocol.parties import Rules
from cfcl.records import Setup, Update
from cfcl.sim import attacks, sizes
from cfcl.sim.group import Group
from cfcl.topology import Graph

_LOCK = threading.Lock()
_HOSTS: list[int] = []
"""How many threads the callers of the runs under way had."""


@dataclass(frozen=True)
class World:
    """What is fixed before the first step."""

    rules: Rules
    dataset: Dataset
    parts: tuple[torch.Tensor, ...]

    @property
    def setting(self) -> Setting:
        """What all devices share."""
        return self.rules.setting

    @property
    def graph(self) -> Graph:
        """Who may talk to whom."""
        return self.rules.graph

    @property
    def config(self) -> Config:
        """The run's config."""
        return self.setting.config

    def ledger(self) -> Ledger:
        """An empty account of the run's costs."""
        cost = self.config.cost
        charged = cost.charged_parameters or self.setting.encoder.num_parameters
        return Ledger(cost, charged, links.rates(cost.rates_file, self.graph))

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """What a run depends on besides its config: the same in all its processes, and when it goes on."""
        setting, budgets, trouble = self.setting, self.setting.budgets, self.rules.outages
        return {
            "data": self.dataset.digest,
            "partition": _digest(*self.parts),
            "graph": _digest(self.graph.edges),
            "exchange.budgets_file": _digest(sorted(budgets.special.items()), sorted(budgets.later.items())),
            "exchange.candidates_file": _digest(sorted(budgets.special_candidates.items())),
            "cost.rates_file": _digest(sorted(self.ledger().rates.items())),
            "model": _digest(*setting.encoder.initial),
            "loss": _digest(setting.objective.name),
            **({} if trouble is None else {"faults": _digest(trouble.away, trouble.down, trouble.graphs)}),
        }

    def setup(self) -> Setup:
        """The first record."""
        labels, encoder = self.dataset.train_labels, self.setting.encoder
        held = None if labels is None else tuple(tuple(sorted(set(labels[part].tolist()))) for part in self.parts)
        return Setup(
            dataset=self.dataset.name,
            encoder=encoder.name,
            num_parameters=encoder.num_parameters,
            points=tuple(len(part) for part in self.parts),
            labels=held,
            edges=self.graph.edges,
            positions=self.graph.positions,
            num_judged=self._num_judged,
            split="validation" if self.config.data.validation > 0 else None,
            **self._releases(),
        )

    def _releases(self) -> dict[str, int]:
        if self.config.privacy.noise == 0 or self.setting.policy.choose is None:
            return {}
        found = releases.most(self.rules)
        return {"most_pulled": found.pulled, "most_pushed": found.pushed}

    @property
    def _num_judged(self) -> int | None:
        """Images behind every accuracy, where a run says so."""
        wanted, data = self.config.evaluation, self.config.data
        told = wanted.labels_per_class or wanted.features or data.validation > 0
        return len(self.dataset.test_images) if told else None


def data_of(config: Config, dataset: Dataset | None = None) -> Dataset:
    """The images of a run: those that `config.data` names or `dataset`, with a validation split if it is asked for."""
    found = datasets.load(config.data) if dataset is None else dataset
    return with_validation(found, config.data.validation) if config.data.validation > 0 else found


def build(
    config: Config,
    *,
    torch_device: str = "cpu",
    dataset: Dataset | None = None,
    module: nn.Module | None = None,
    loss: Loss | None = None,
) -> World:
    """Data, partition, graph, policy and initial model of a run; every impossible wish is refused here.

    A `dataset` takes the place of the one that `config.data` names, a `module` that of `config.model.encoder`, a `loss`
    that of `config.train.objective`.
    """
    where = usable_device(torch_device)
    policy = policies.find(config.exchange.method)
    if policy.choose is not None and config.exchange.mode == "explicit":
        _check_privacy(config)
    if dataset is None:
        fit.check(config)
    dataset = data_of(config, dataset)
    sizes.check(config, dataset, module)
    parts = partition.split(
        config.partition,
        dataset.train_labels,
        len(dataset.train_images),
        rng.stream(config.seed, "partition"),
        devices=dataset.train_devices,
    )
    graph = topology.build(config.graph, config.partition.num_devices, rng.stream(config.seed, "graph"))
    objective = objectives.build(config, loss)
    encoder = Encoder(
        config.model, dataset.image_shape, seed=config.seed, device=where, module=module, tail=objective.tail
    )
    if config.exchange.mode == "activations" and policy.choose is not None:
        _check_layer(config, encoder, policy)
    graph, trouble = outages.load(config, graph)
    setting = Setting(
        config=config,
        encoder=encoder,
        policy=policy,
        schedule=schedule.build(config, once=policy.when == "start"),
        budgets=links.budgets(config, graph),
        objective=objective,
        extras=objective.extras(encoder.initial.params),
        lacks=_lacks(config, dataset, parts) if "labels" in policy.needs else None,
    )
    attacks.check(setting)
    return World(Rules(setting, graph, trouble), dataset, parts)


def _check_privacy(config: Config) -> None:
    """Refuse to send datapoints where the settings ask for another thing."""
    privacy, remedy = config.privacy, "set exchange.mode='implicit' or 'activations'"
    if privacy.raw == "never":
        raise CfclError(
            "privacy.raw='never' forbids datapoints to leave a device, but exchange.mode='explicit' sends them: "
            f"{remedy}, or privacy.raw='allowed'"
        )
    if config.partition.num_devices - len(privacy.never_devices) < min(2, config.partition.num_devices):
        raise CfclError(
            f"privacy.never_devices={list(privacy.never_devices)} leaves no two devices that could exchange "
            f"datapoints, but exchange.mode='explicit' sends them: {remedy}, or exchange.method='fedavg', "
            "or name fewer devices"
        )
    if privacy.clip is not None:
        raise CfclError(
            f"privacy.clip={privacy.clip:g} and noise={privacy.noise:g} blur embeddings and activations, but "
            f"exchange.mode='explicit' sends datapoints as they are: {remedy}, or privacy.clip=none"
        )


def _check_layer(config: Config, encoder: Encoder, policy: policies.Policy) -> None:
    if config.exchange.layer not in encoder.shapes:
        raise CfclError(
            f"exchange.layer={config.exchange.layer!r} is no stage of {encoder.name}: choose one of "
            f"{', '.join(encoder.shapes)}"
        )
    if policy.when == "start":
        raise CfclError(
            f"exchange.method={config.exchange.method!r} sends all at the start, but activations of an untrained model "
            "are soon worth nothing: choose another exchange.method, or exchange.mode='explicit'"
        )


def check_same(world: World, group: Group) -> None:
    """Refuse a run whose processes have read or built different things."""
    if group.size == 1:
        return
    first, *others = map(json.loads, group.everywhere(json.dumps(world.fingerprints)))
    for rank, other in enumerate(others, start=1):
        for what, digest in first.items():
            if other[what] != digest:
                raise CfclError(
                    f"process {rank} has other {what} than process 0, but each reads them for itself: give all the "
                    "same files, leave those alone while a run starts, and seed a module of your own"
                )


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


def update_record(step: int, figures: Sequence[Sequence[float]]) -> Update:
    """The record of one update: means over all devices, in their order; the dynamic margin is the last figure."""
    means = [sum(column) / len(figures) for column in zip(*figures, strict=True)]
    return Update(step, *means)


def _digest(*things: object) -> str:
    """Sixteen hex digits of tensors, or of what prints itself whole."""
    found = hashlib.sha256()
    for thing in things:
        found.update(thing.cpu().numpy().data if isinstance(thing, torch.Tensor) else repr(thing).encode())
    return found.hexdigest()[:16]


@contextmanager
def single_thread() -> Iterator[None]:
    """One thread for arithmetic: the bits of a sum may depend on how many share it."""
    with _LOCK:
        before = torch.get_num_threads()
        # The number is each thread's own, but a new thread starts with the one that was set last: perhaps by us.
        if before == 1 and _HOSTS:
            before = _HOSTS[0]
        _HOSTS.append(before)
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            _HOSTS.remove(before)
            torch.set_num_threads(before)
