"""The reference simulation: all devices in one process, one after another. Clear before fast."""

import time
from collections.abc import Iterator
from typing import Any, TypeVar

from torch import Tensor, nn

from cfcl import device, server
from cfcl.config import Config
from cfcl.core import metrics
from cfcl.data.datasets import Dataset
from cfcl.device import Answer, StepReport
from cfcl.exchange.messages import Message, PullRequest
from cfcl.models import Weights
from cfcl.sim import evaluation, world
from cfcl.sim.diagnostics import Delivery, Pulls
from cfcl.sim.group import ALONE
from cfcl.sim.world import Timings, single_thread

Row = dict[str, Any]
M = TypeVar("M", bound=Message)


class Simulation:
    """A run in progress. `rows` yields its records; the model and the costs are there afterwards."""

    group = ALONE

    def __init__(
        self,
        config: Config,
        *,
        torch_device: str = "cpu",
        dataset: Dataset | None = None,
        module: nn.Module | None = None,
    ) -> None:
        self.config = config
        self.world = world.build(config, torch_device=torch_device, dataset=dataset, module=module)
        setting, data = self.world.setting, self.world.dataset
        points = data.train_images.to(setting.encoder.device)
        self.devices = [device.start(setting, i, points, part) for i, part in enumerate(self.world.parts)]
        for state in self.devices:
            device.check(setting, state)
        self.model: Weights = setting.encoder.initial
        self.ledger = self.world.ledger()
        self.timings = Timings()
        self._pulls = Pulls(setting, data.train_labels, self.world.parts)

    def rows(self) -> Iterator[Row]:
        """Run to the end, yielding one record after another."""
        with single_thread():
            yield self.world.setup_row()
            metrics.warm_up()
            begun = time.perf_counter()
            yield from self._evaluate(0)
            for step in range(self.config.train.steps):
                if step > 0 and self.world.setting.schedule.aggregates(step):
                    yield from self._aggregate(step)
                yield from self._exchange(step)
                yield from self._update(step)
            yield from self._aggregate(self.config.train.steps)
            images = evaluation.map_images(self.config, self.world.dataset)
            found = evaluation.label_map(self.config, self.world.dataset, self._embed(images))
            yield {"kind": "final", "step": self.config.train.steps, **found}
        self.timings.total = time.perf_counter() - begun

    def _aggregate(self, step: int) -> Iterator[Row]:
        setting = self.world.setting
        agreement = self._agreement() if self.world.evaluates(step) else {}
        chosen = server.participants(self.config, step)
        models = [self._send(device.upload(self.devices[i], step)) for i in chosen]
        self.ledger.settle()
        self.model = server.aggregate(models)
        for message in server.broadcast(self.model, range(len(self.devices)), step):
            self.devices[message.target] = device.adopt(setting, self.devices[message.target], self._send(message))
        self.ledger.settle()
        if self.world.evaluates(step):
            yield from self._evaluate(step, agreement)

    def _exchange(self, step: int) -> Iterator[Row]:
        setting, graph = self.world.setting, self.world.graph
        if setting.policy.choose is None:
            return
        with self.timings.counting("exchange"):
            if setting.schedule.pushes(step):
                for i in range(len(self.devices)):
                    self.devices[i], reserves = device.push(setting, self.devices[i], step, graph.neighbours(i))
                    for reserve in reserves:
                        message = self._send(reserve)
                        self.devices[message.target] = device.store(self.devices[message.target], message)
            delivered: dict[int, list[Delivery]] = {}
            if setting.schedule.exchanges(step):
                for answer in self._pull(step):
                    delivered.setdefault(answer.items.target, []).append(self._pulls.follow(answer))
        for i in sorted(delivered):
            yield from self._pulls.observe(self.devices[i], delivered[i], step)
        with self.timings.counting("exchange"):
            for i, deliveries in delivered.items():
                items = [self._send(delivery.items) for delivery in deliveries]
                self.devices[i] = device.absorb(setting, self.devices[i], items, step)
            self.ledger.settle()

    def _pull(self, step: int) -> list[Answer]:
        setting, graph = self.world.setting, self.world.graph
        requests: dict[int, list[PullRequest]] = {}
        for state in self.devices:
            for message in device.request(setting, state.id, step, graph.neighbours(state.id)):
                requests.setdefault(message.target, []).append(self._send(message))
        answers: list[Answer] = []
        if not requests:
            return answers
        slowest = 0.0
        for i, state in enumerate(self.devices):
            begun = time.perf_counter()
            (self.devices[i],) = device.prepare(setting, [state], step)
            mine = device.answer(setting, [(self.devices[i], requests.get(i, []))], step)
            self.devices[i] = device.remember(setting, self.devices[i], mine)
            answers += mine
            slowest = max(slowest, time.perf_counter() - begun)
        self.timings.selection.append((step, slowest))
        return answers

    def _update(self, step: int) -> Iterator[Row]:
        reports: list[StepReport] = []
        for i, state in enumerate(self.devices):
            self.devices[i], report = device.local_step(self.world.setting, state, step)
            reports.append(report)
        self.ledger.charge_step()
        if self.world.logs(step):
            yield world.train_row(step, reports, [state.margin for state in self.devices])

    def _agreement(self) -> Row:
        """How alike the local models are just before they are averaged."""
        with self.timings.counting("evaluation"):
            images = evaluation.health_images(self.config, self.world.dataset)
            compared = evaluation.compared_devices(self.config)
            encoder = self.world.setting.encoder
            return evaluation.agreement([encoder.embed(self.devices[i].weights, images) for i in compared])

    def _evaluate(self, step: int, extra: Row | None = None) -> Iterator[Row]:
        with self.timings.counting("evaluation"):
            images = evaluation.images(self.config, self.world.dataset)
            embeddings = {name: self._embed(some) for name, some in images.items()}
            found = evaluation.judge(self.config, self.world.dataset, embeddings)
        yield {"kind": "eval", "step": step, **found, **(extra or {}), **self.ledger.totals()}

    def _embed(self, images: Tensor) -> Tensor:
        return self.world.setting.encoder.embed(self.model, images)

    def _send(self, message: M) -> M:
        """The link: every message passes here, is counted here, and comes out at the other end."""
        self.ledger.charge(message)
        return message
