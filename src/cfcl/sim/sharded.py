"""The fast simulation: devices are shared out among processes, and what can go through together does.

It re-orders the work of the reference loop and re-defines nothing: the records are the same to the byte.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, replace
from itertools import groupby
from typing import Any, TypeVar, get_args

import torch
from torch import Tensor, nn

from cfcl import device, server
from cfcl.config import Config
from cfcl.core import averaging, metrics
from cfcl.data.datasets import Dataset
from cfcl.device import StepReport
from cfcl.exchange.cost import Ledger
from cfcl.exchange.messages import (
    DataItems,
    DataReserve,
    Direction,
    EmbeddingItems,
    EmbeddingReserve,
    Items,
    Kind,
    Message,
    PullRequest,
    Reserve,
)
from cfcl.models import Weights, portions
from cfcl.sim import evaluation, world
from cfcl.sim.diagnostics import Delivery, Pulls
from cfcl.sim.group import ALONE, Group, Parcel
from cfcl.sim.world import Timings, single_thread

Row = dict[str, Any]
M = TypeVar("M", bound=Message)
Watch = Callable[[int, int], None]
"""Sees the device and the step of every update just before it is made."""

KINDS: tuple[Kind, ...] = get_args(Kind)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
MOST_TOGETHER = 16
"""Devices whose batches are drawn at once."""
REPORT_EVERY = 1.0
"""Seconds after which processes tell the leader their losses, at the latest."""


class Simulation:
    """A run in progress, seen from one process of a group. Records come out at the leader only."""

    def __init__(
        self,
        config: Config,
        *,
        torch_device: str = "cpu",
        dataset: Dataset | None = None,
        module: nn.Module | None = None,
        group: Group = ALONE,
        watch: Watch = lambda device, step: None,
    ) -> None:
        self.config = config
        self.group = group
        self.world = world.build(config, torch_device=torch_device, dataset=dataset, module=module)
        setting, data = self.world.setting, self.world.dataset
        points = data.train_images.to(setting.encoder.device)
        self.devices = {
            i: device.start(setting, i, points, self.world.parts[i]) for i in group.share(len(self.world.parts))
        }
        for state in self.devices.values():
            device.check(setting, state)
        self.model: Weights = setting.encoder.initial
        self.ledger = self.world.ledger()
        self.timings = Timings()
        self._pulls = Pulls(setting, data.train_labels, self.world.parts)
        self._watch = watch
        self._unsent: dict[int, Tensor] = {}
        self._report_period = 1

    def rows(self) -> Iterator[Row]:
        """Run to the end, yielding one record after another."""
        with single_thread():
            if self.group.leads:
                yield self.world.setup_row()
                metrics.warm_up()
            self.group.maximum(0.0)  # all processes are there: to wait for them is no part of a run
            begun = time.perf_counter()
            yield from self._evaluate(0)
            for step in range(self.config.train.steps):
                if step > 0 and self.world.setting.schedule.aggregates(step):
                    yield from self._aggregate(step)
                yield from self._exchange(step)
                yield from self._update(step)
            yield from self._aggregate(self.config.train.steps)
            embeddings = self._embed(evaluation.map_images(self.config, self.world.dataset))
            self.ledger = self._whole_ledger()
            if self.group.leads:
                found = evaluation.label_map(self.config, self.world.dataset, embeddings)
                yield {"kind": "final", "step": self.config.train.steps, **found}
        self.timings.total = time.perf_counter() - begun

    def _aggregate(self, step: int) -> Iterator[Row]:
        yield from self._report()
        setting = self.world.setting
        agreement = self._agreement() if self.world.evaluates(step) else {}
        chosen = set(server.participants(self.config, step))
        models = [self._send(device.upload(state, step)) for i, state in self.devices.items() if i in chosen]
        self.ledger.settle(self.group.maximum)
        sizes = [self.model.params.numel(), self.model.buffers.numel(), 1]

        def add(total: Tensor) -> None:
            params, buffers, weight = torch.split(total, sizes)
            for model in models:
                averaging.accumulate(params, model.params.cpu(), model.weight)
                averaging.accumulate(buffers, model.buffers.cpu(), model.weight)
                weight += model.weight

        params, buffers, weight = torch.split(self.group.sum_in_order(sum(sizes), add), sizes)
        self.model = Weights((params / weight).to(self.model.params), (buffers / weight).to(self.model.buffers))
        for message in server.broadcast(self.model, self.devices, step):
            self.devices[message.target] = device.adopt(setting, self.devices[message.target], self._send(message))
        if self.config.cost.charge_broadcast:
            self.ledger.settle(self.group.maximum)
        if self.world.evaluates(step):
            yield from self._evaluate(step, agreement)

    def _exchange(self, step: int) -> Iterator[Row]:
        setting = self.world.setting
        if setting.policy.choose is None or not (setting.schedule.pushes(step) or setting.schedule.exchanges(step)):
            return
        yield from self._report()
        with self.timings.counting("exchange"):
            if setting.schedule.pushes(step):
                self._push(step)
            delivered: dict[int, list[Delivery]] = {}
            if setting.schedule.exchanges(step):
                for delivery in self._deliver_items(self._pull(step)):
                    delivered.setdefault(delivery.items.target, []).append(delivery)
        rows = [row for i in sorted(delivered) for row in self._pulls.observe(self.devices[i], delivered[i], step)]
        with self.timings.counting("exchange"):
            for i, deliveries in delivered.items():
                items = [self._send(delivery.items) for delivery in deliveries]
                self.devices[i] = device.absorb(setting, self.devices[i], items, step)
            self.ledger.settle(self.group.maximum)
        if setting.schedule.exchanges(step):
            yield from self._gather_pulls(rows)

    def _push(self, step: int) -> None:
        setting, graph = self.world.setting, self.world.graph
        reserves: list[Reserve] = []
        for i in self.devices:
            self.devices[i], mine = device.push(setting, self.devices[i], step, graph.neighbours(i))
            reserves += mine
        for reserve in self._deliver_reserves(reserves):
            message = self._send(reserve)
            self.devices[message.target] = device.store(self.devices[message.target], message)

    def _pull(self, step: int) -> list[Delivery]:
        """What this process's devices send, chosen for all links together."""
        setting, graph = self.world.setting, self.world.graph
        # A neighbour's request follows from what all know: it need not travel.
        requests: dict[int, list[PullRequest]] = {
            j: [message for i in graph.neighbours(j) for message in device.request(setting, i, step, [j])]
            for j in self.devices
        }
        busiest, total = max(map(len, requests.values())), sum(map(len, requests.values()))
        begun = time.perf_counter()
        deliveries: list[Delivery] = []
        if self.group.maximum(float(total)) > 0:
            self.devices = dict(
                zip(self.devices, device.prepare(setting, list(self.devices.values()), step), strict=True)
            )
            asked = [(self.devices[j], requests[j]) for j in self.devices]
            answers = device.answer(setting, asked, step)
            for j, mine in groupby(answers, lambda answer: answer.items.source):
                self.devices[j] = device.remember(setting, self.devices[j], list(mine))
            deliveries = [self._pulls.follow(answer) for answer in answers]
            # All at once: the device with most links has that share of the time.
            slowest = (time.perf_counter() - begun) * busiest / max(total, 1)
            self.timings.selection.append((step, self.group.maximum(slowest)))
        return deliveries

    def _update(self, step: int) -> Iterator[Row]:
        begun = time.perf_counter()
        reports: list[StepReport] = []
        ids = list(self.devices)
        for first in range(0, len(ids), MOST_TOGETHER):
            # no more states than these: what is replaced shall be freed
            states = [self.devices[i] for i in ids[first : first + MOST_TOGETHER]]
            for state, batch in zip(states, device.draw_batches(self.world.setting, states, step), strict=True):
                self._watch(state.id, step)
                self.devices[state.id], report = device.local_step(self.world.setting, state, step, batch)
                reports.append(report)
        self.ledger.charge_step()
        if self.world.logs(step):
            margins = [state.margin for state in self.devices.values()]
            rows = [[*astuple(report), margin] for report, margin in zip(reports, margins, strict=True)]
            self._unsent[step] = torch.tensor(rows, dtype=torch.float64)
        if step == 0:
            taken = time.perf_counter() - begun
            self._report_period = self.group.agree(max(1, round(REPORT_EVERY / max(taken, 1e-6))))
        if step % self._report_period == 0:
            yield from self._report()

    def _report(self) -> Iterator[Row]:
        """The losses since the last report, from all processes."""
        if not self._unsent:
            return
        steps = list(self._unsent)
        # [devices, steps, figures]: devices of one process after those of another
        found = self.group.gather(torch.stack(list(self._unsent.values()), dim=1))
        self._unsent.clear()
        if self.group.leads:
            for number, step in enumerate(steps):
                figures = found[:, number].tolist()
                yield world.train_row(step, [StepReport(*row[:-1]) for row in figures], [row[-1] for row in figures])

    def _gather_pulls(self, rows: Sequence[Row]) -> Iterator[Row]:
        names = ("step", "transmitter", "receiver", "items", "effective_candidates", "held_labels", "centroid_distance")
        missing = float("nan")
        table = [[missing if row[name] is None else row[name] for name in names] for row in rows]
        found = self.group.gather(torch.tensor(table, dtype=torch.float64).view(-1, len(names)))
        for line in found.tolist() if self.group.leads else []:
            counts = [int(value) for value in line[:4]]
            figures = [None if value != value else value for value in line[4:]]
            yield {"kind": "pull", **dict(zip(names, [*counts, *figures], strict=True))}

    def _agreement(self) -> Row:
        with self.timings.counting("evaluation"):
            images = evaluation.health_images(self.config, self.world.dataset)
            encoder = self.world.setting.encoder
            compared = [i for i in evaluation.compared_devices(self.config) if i in self.devices]
            mine = [encoder.embed(self.devices[i].weights, images) for i in compared]
            nothing = torch.zeros(0, len(images), encoder.embedding_dim, device=encoder.device)
            found = self.group.gather(torch.stack(mine) if mine else nothing)
            return evaluation.agreement(list(found)) if self.group.leads else {}

    def _evaluate(self, step: int, extra: Row | None = None) -> Iterator[Row]:
        with self.timings.counting("evaluation"):
            images = evaluation.images(self.config, self.world.dataset)
            embeddings = {name: self._embed(some) for name, some in images.items()}
            ledger = self._whole_ledger()
            if self.group.leads:
                found = evaluation.judge(self.config, self.world.dataset, embeddings)
        if self.group.leads:
            yield {"kind": "eval", "step": step, **found, **(extra or {}), **ledger.totals()}

    def _embed(self, images: Tensor) -> Tensor:
        """Embeddings under the global model, at the leader; every process takes its share of the portions."""
        encoder = self.world.setting.encoder
        parts = portions(images)
        mine = [encoder.embed(self.model, parts[i]) for i in self.group.share(len(parts))]
        nothing = torch.zeros(0, encoder.embedding_dim, device=encoder.device)
        return self.group.gather(torch.cat([nothing, *mine]))

    def _deliver_reserves(self, reserves: Sequence[Reserve]) -> list[Reserve]:
        """The reserves of all processes that are for devices here, in order of source."""
        parcels = [
            Parcel(self._owner(item), (item.source, item.target, item.step), (_content(item),)) for item in reserves
        ]
        found: list[Reserve] = []
        for parcel in self.group.deliver(parcels, 3, [device.no_items(self.world.setting)]):
            source, target, step = map(int, parcel.head)
            kind = DataReserve if self.config.exchange.mode == "explicit" else EmbeddingReserve
            found.append(kind(source, target, step, parcel.parts[0]))
        return sorted(found, key=lambda item: (item.source, item.target))

    def _deliver_items(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """The items of all processes that are for devices here, in order of source."""
        setting = self.world.setting
        parcels = [
            Parcel(
                self._owner(item.items),
                (item.items.source, item.items.target, item.items.step, item.effective_candidates),
                (_content(item.items), item.embeddings, item.labels),
            )
            for item in deliveries
        ]
        empty = [device.no_items(setting), device.no_embeddings(setting), torch.zeros(0, dtype=torch.int64)]
        found: list[Delivery] = []
        for parcel in self.group.deliver(parcels, 4, empty):
            source, target, step = map(int, parcel.head[:3])
            kind = DataItems if self.config.exchange.mode == "explicit" else EmbeddingItems
            content, embeddings, labels = parcel.parts
            found.append(Delivery(kind(source, target, step, content), embeddings, labels, parcel.head[3]))
        return sorted(found, key=lambda item: (item.items.source, item.items.target))

    def _owner(self, message: Message) -> int:
        return self.group.owner(message.target, len(self.world.parts))

    def _whole_ledger(self) -> Ledger:
        """The costs of all processes, at the leader."""
        lines = [
            [source, target, KINDS.index(kind), DIRECTIONS.index(direction), size]
            for (source, target, kind, direction), size in self.ledger.bytes.items()
        ]
        found = self.group.gather(torch.tensor(lines, dtype=torch.int64).view(-1, 5)).tolist()
        whole = {(source, target, KINDS[kind], DIRECTIONS[way]): size for source, target, kind, way, size in found}
        return replace(self.ledger, bytes=whole)

    def _send(self, message: M) -> M:
        """The link: every message passes here, is counted here, and comes out at the other end."""
        self.ledger.charge(message)
        return message


def _content(message: Reserve | Items) -> Tensor:
    return message.points if isinstance(message, DataReserve | DataItems) else message.embeddings
