"""The reference simulation: all devices in one process, one after another. Clear before fast."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn

from cfcl import device, rng, schedule, server, topology
from cfcl.config import Config
from cfcl.data import datasets, partition
from cfcl.data.datasets import Dataset
from cfcl.device import Answer, Setting, StepReport
from cfcl.errors import CfclError
from cfcl.exchange import links, policies
from cfcl.exchange.cost import Ledger
from cfcl.exchange.messages import Items, Message, PullRequest
from cfcl.models import Encoder, Weights
from cfcl.sim import evaluation
from cfcl.sim.diagnostics import Pulls
from cfcl.topology import Graph

Row = dict[str, Any]
M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class World:
    """What is fixed before the first step."""

    setting: Setting
    dataset: Dataset
    parts: tuple[torch.Tensor, ...]
    graph: Graph


@dataclass
class Timings:
    """Wall-clock figures, kept apart from the deterministic records."""

    selection: list[tuple[int, float]] = field(default_factory=list)
    """Per exchange, the slowest device's time for K-means and importance."""
    evaluation: float = 0.0
    total: float = 0.0


def build_world(
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
    )
    return World(setting, dataset, parts, graph)


class Simulation:
    """A run in progress. `rows` yields its records; the model and the costs are there afterwards."""

    def __init__(
        self,
        config: Config,
        *,
        torch_device: str = "cpu",
        dataset: Dataset | None = None,
        module: nn.Module | None = None,
    ) -> None:
        self.config = config
        self.world = build_world(config, torch_device=torch_device, dataset=dataset, module=module)
        setting, data = self.world.setting, self.world.dataset
        points = data.train_images.to(setting.encoder.device)
        self.devices = [device.start(setting, i, points[part]) for i, part in enumerate(self.world.parts)]
        for state in self.devices:
            device.check(setting, state)
        self.model: Weights = setting.encoder.initial
        self.ledger = Ledger(
            config.cost,
            config.cost.charged_parameters or setting.encoder.num_parameters,
            links.rates(config.cost.rates_file, self.world.graph),
        )
        self.timings = Timings()
        labels = data.train_labels
        self._pulls = Pulls(setting, None if labels is None else [labels[part] for part in self.world.parts])

    def rows(self) -> Iterator[Row]:
        """Run to the end, yielding one record after another."""
        begun = time.perf_counter()
        with single_thread():
            yield self._setup_row()
            yield from self._evaluate(0)
            for step in range(self.config.train.steps):
                if step > 0 and self.world.setting.schedule.aggregates(step):
                    yield from self._aggregate(step)
                yield from self._exchange(step)
                yield from self._update(step)
            yield from self._aggregate(self.config.train.steps)
            yield {"kind": "final", "step": self.config.train.steps, **self._on_model(evaluation.label_map)}
        self.timings.total = time.perf_counter() - begun

    def _setup_row(self) -> Row:
        labels, graph = self.world.dataset.train_labels, self.world.graph
        return {
            "kind": "setup",
            "dataset": self.world.dataset.name,
            "encoder": self.world.setting.encoder.name,
            "num_parameters": self.world.setting.encoder.num_parameters,
            "points": [len(part) for part in self.world.parts],
            "labels": None if labels is None else [sorted(set(labels[part].tolist())) for part in self.world.parts],
            "edges": graph.edges,
            "positions": graph.positions,
        }

    def _aggregate(self, step: int) -> Iterator[Row]:
        setting, dataset = self.world.setting, self.world.dataset
        evaluates = self._evaluates(step)
        agreement: Row = {}
        if evaluates:
            with self._evaluation_clock():
                local = [state.weights for state in self.devices]
                agreement = {"cka": evaluation.agreement(self.config, setting.encoder, local, dataset)}
        chosen = server.participants(self.config, step)
        models = [self._send(device.upload(self.devices[i], step)) for i in chosen]
        self.ledger.settle()
        self.model = server.aggregate(models)
        for message in server.broadcast(self.model, len(self.devices), step):
            self.devices[message.target] = device.adopt(setting, self.devices[message.target], self._send(message))
        self.ledger.settle()
        if evaluates:
            yield from self._evaluate(step, agreement)

    def _exchange(self, step: int) -> Iterator[Row]:
        setting, graph = self.world.setting, self.world.graph
        if setting.policy.choose is None:
            return
        if setting.schedule.pushes(step):
            for i in range(len(self.devices)):
                self.devices[i], reserves = device.push(setting, self.devices[i], step, graph.neighbours(i))
                for reserve in reserves:
                    message = self._send(reserve)
                    self.devices[message.target] = device.store(self.devices[message.target], message)
        if setting.schedule.exchanges(step):
            answers = self._pull(step)
            yield from self._pulls.observe(self.devices, answers, step)
            self._absorb(answers, step)
        self.ledger.settle()

    def _pull(self, step: int) -> list[Answer]:
        setting, graph = self.world.setting, self.world.graph
        requests: dict[int, list[PullRequest]] = {}
        for state in self.devices:
            for message in device.request(setting, state, step, graph.neighbours(state.id)):
                requests.setdefault(message.target, []).append(self._send(message))
        answers: list[Answer] = []
        if not requests:
            return answers
        slowest = 0.0
        for i, state in enumerate(self.devices):
            begun = time.perf_counter()
            self.devices[i] = device.prepare(setting, state, step)
            answers += device.answer(setting, self.devices[i], requests.get(i, []), step)
            slowest = max(slowest, time.perf_counter() - begun)
        self.timings.selection.append((step, slowest))
        return answers

    def _absorb(self, answers: Sequence[Answer], step: int) -> None:
        delivered: dict[int, list[Items]] = {}
        for answer in answers:
            delivered.setdefault(answer.items.target, []).append(self._send(answer.items))
        for i, items in delivered.items():
            self.devices[i] = device.absorb(self.world.setting, self.devices[i], items, step)

    def _update(self, step: int) -> Iterator[Row]:
        reports: list[StepReport] = []
        for i, state in enumerate(self.devices):
            self.devices[i], report = device.local_step(self.world.setting, state, step)
            reports.append(report)
        self.ledger.charge_step()
        if step % self.config.evaluation.log_every == 0 or step == self.config.train.steps - 1:
            yield {"kind": "train", "step": step, **_mean(reports), "margin": self._mean_margin()}

    def _mean_margin(self) -> float:
        return sum(state.margin for state in self.devices) / len(self.devices)

    def _evaluates(self, step: int) -> bool:
        number, rest = divmod(step, self.config.aggregation.period)
        return step == self.config.train.steps or (rest == 0 and number % self.config.evaluation.every == 0)

    def _evaluate(self, step: int, extra: Row | None = None) -> Iterator[Row]:
        with self._evaluation_clock():
            found = self._on_model(evaluation.judge)
        yield {"kind": "eval", "step": step, **found, **(extra or {}), **self.ledger.totals()}

    def _on_model(self, function: Callable[[Config, Encoder, Weights, Dataset], Row]) -> Row:
        return function(self.config, self.world.setting.encoder, self.model, self.world.dataset)

    def _send(self, message: M) -> M:
        """The link: every message passes here, is counted here, and comes out at the other end."""
        self.ledger.charge(message)
        return message

    @contextmanager
    def _evaluation_clock(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.timings.evaluation += time.perf_counter() - begun


@contextmanager
def single_thread() -> Iterator[None]:
    """One thread for arithmetic: the bits of a sum may depend on how many share it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _mean(reports: Sequence[StepReport]) -> dict[str, float]:
    rows = [asdict(report) for report in reports]
    return {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}


def _torch_device(name: str) -> torch.device:
    try:
        where = torch.device(name)
        torch.zeros(1, device=where)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise CfclError(f"device {name!r} cannot be used: {reason}; choose cpu, or a device this torch has") from None
    return where
