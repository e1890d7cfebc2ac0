"""The phases of a step. Each is a pair, send and take, over the parties that a process holds.

In a step first the server averages, then neighbours exchange, then every device makes one update. A phase says which
messages each party expects; `take` uses those and refuses the rest.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast, final

import torch
from torch import Tensor

from cfcl import device, server
from cfcl.device import Answer, Setting, StepReport
from cfcl.exchange.messages import (
    ITEMS,
    RESERVES,
    SERVER,
    ActivationItems,
    ActivationReserve,
    GlobalModel,
    Items,
    LocalModel,
    Message,
    ModelBlock,
    ModelSum,
    PullRequest,
    Reserve,
)
from cfcl.protocol.parties import Parties, Rules
from cfcl.protocol.refusals import Refusal, astray, permitted, sift, unlike

MOST_TOGETHER = 16
"""Devices whose batches are drawn at once."""
LARGEST = 1e15
"""Of a number that may be sent: far beyond what honest devices have, and sums of squares and products are finite."""

Watch = Callable[[int, int], None]
"""Sees the device and the step of every update just before it is made."""


def nobody(device: int, step: int) -> None:
    """Watches nothing."""


@dataclass(frozen=True)
class Sent:
    """What comes out of a process in one phase."""

    messages: Sequence[Message] = ()
    reports: Sequence[Answer | StepReport] = ()
    """What a runtime may record; not for any other party."""


class Phase(ABC):
    """One round of messages: what each party sends, and what it makes of what arrives."""

    travels: ClassVar[bool] = True
    """Whether there are messages at all."""

    @abstractmethod
    def kind(self, parties: Parties) -> type[Message]:
        """The type of message that this phase carries."""

    def kinds(self, parties: Parties) -> tuple[type[Message], ...]:
        """The types that may arrive."""
        return (self.kind(parties),)

    @abstractmethod
    def send(self, parties: Parties, step: int) -> Sent:
        """What the parties send; their states change in place."""

    @abstractmethod
    def expects(self, parties: Parties, step: int) -> dict[int, tuple[int, ...]]:
        """For each party here, from whom it expects a message."""

    @abstractmethod
    def fault(self, parties: Parties, message: Message) -> str | None:
        """What is wrong with the content of a message whose sender, step and kind are right."""

    @abstractmethod
    def use(self, parties: Parties, party: int, messages: list[Message], step: int) -> None:
        """Take in what has arrived for `party` and is in order."""

    @final
    def take(self, parties: Parties, inbox: Iterable[Message], step: int) -> list[Refusal]:
        """Use what is expected and in order; the refusals of everything else."""
        expected = self.expects(parties, step)
        by_target: dict[int, list[Message]] = {party: [] for party in expected}
        allowed, refused = permitted(parties.rules.setting, inbox, step)
        for message in allowed:
            by_target.setdefault(message.target, []).append(message)
        for party, sources in expected.items():
            accepted, refusals = sift(
                by_target.pop(party),
                target=party,
                step=step,
                kinds=self.kinds(parties),
                expected=sources,
                fault=lambda message: self.fault(parties, message),
            )
            self.use(parties, party, accepted, step)
            refused += refusals
        refused += [astray(message, step) for messages in by_target.values() for message in messages]
        return refused


@final
class Upload(Phase):
    """Devices send their models; the server adds them up, Eq. (5), or keeps them for a rule that needs all."""

    def kind(self, parties: Parties) -> type[Message]:
        return LocalModel

    def kinds(self, parties: Parties) -> tuple[type[Message], ...]:
        return LocalModel, ModelSum

    def send(self, parties: Parties, step: int) -> Sent:
        chosen = set(server.participants(parties.rules.setting.config, step))
        return Sent(
            [device.upload(parties.rules.setting, state, step) for i, state in parties.devices.items() if i in chosen]
        )

    def expects(self, parties: Parties, step: int) -> dict[int, tuple[int, ...]]:
        if parties.server is None:
            return {}
        config, serves = parties.rules.setting.config, set(parties.server.serves)
        own = tuple(i for i in server.participants(config, step) if i in serves)
        return {SERVER: own if parties.server.first or server.needs_all(config) else (SERVER, *own)}

    def fault(self, parties: Parties, message: Message) -> str | None:
        if isinstance(message, ModelSum):
            return _sum_fault(parties, message)
        assert isinstance(message, LocalModel)
        if not 0.0 < message.weight <= LARGEST:
            return f"its weight {message.weight} is not a number above 0 and up to {LARGEST:g}"
        return _model_fault(parties.rules, message)

    def use(self, parties: Parties, party: int, messages: list[Message], step: int) -> None:
        assert parties.server is not None
        if server.needs_all(parties.rules.setting.config):
            models = tuple(cast(LocalModel, message) for message in messages)
            parties.server = replace(parties.server, models=models, total=None)
            return
        total = server.start(parties.server)
        for message in messages:  # what another process has summed up comes first
            if isinstance(message, ModelSum):
                total += message.total
            else:
                server.add(total, cast(LocalModel, message))
        parties.server = replace(parties.server, total=total)


@final
class Regroup(Phase):
    """Each process of the server gets all models for its own block of entries, and applies the rule to it."""

    def kind(self, parties: Parties) -> type[Message]:
        return ModelBlock

    def send(self, parties: Parties, step: int) -> Sent:
        if parties.server is None:
            return Sent()
        measures = server.measure(parties.rules.setting.config, parties.server)
        message = ModelBlock(SERVER, SERVER, step, server.stack(parties.server), 0, measures)
        parties.server = replace(parties.server, models=())
        return Sent([message])

    def expects(self, parties: Parties, step: int) -> dict[int, tuple[int, ...]]:
        return {} if parties.server is None else {SERVER: (SERVER,)}

    def fault(self, parties: Parties, message: Message) -> str | None:
        block, config = cast(ModelBlock, message), parties.rules.setting.config
        most = len(server.participants(config, message.step))
        if (block.measures is None) != (config.aggregation.clip is None):
            return "weights and distances come with models that are clipped, and with no others"
        if block.measures is not None:
            like = torch.zeros(len(block.entries), 2, dtype=torch.float64)
            if (found := unlike("weights and distances", block.measures, like)) is not None:
                return found
        return unlike("the block", block.entries, torch.zeros(0, block.entries.shape[-1]), rows=most)

    def use(self, parties: Parties, party: int, messages: list[Message], step: int) -> None:
        assert parties.server is not None
        config = parties.rules.setting.config
        for message in messages:
            block = cast(ModelBlock, message)
            weights = None if block.measures is None else block.measures[:, 0]
            total = server.combine(config, server.clipped(config, parties.server, block), weights)
            parties.server = replace(parties.server, total=total)


@final
class Fold(Phase):
    """All processes of the server learn the result: the sum visits them in order of device, or blocks make it whole."""

    def kind(self, parties: Parties) -> type[Message]:
        return ModelSum

    def send(self, parties: Parties, step: int) -> Sent:
        if parties.server is None or parties.server.total is None:
            return Sent()
        return Sent([ModelSum(SERVER, SERVER, step, parties.server.total)])

    def expects(self, parties: Parties, step: int) -> dict[int, tuple[int, ...]]:
        return {} if parties.server is None else {SERVER: (SERVER,)}

    def fault(self, parties: Parties, message: Message) -> str | None:
        return _sum_fault(parties, cast(ModelSum, message))

    def use(self, parties: Parties, party: int, messages: list[Message], step: int) -> None:
        assert parties.server is not None
        for message in messages:
            average = server.finish(parties.server, cast(ModelSum, message).total)
            parties.server = server.improve(parties.rules.setting.config.aggregation, parties.server, average)


@final
class Broadcast(Phase):
    """The server sends the average; devices adopt it."""

    def kind(self, parties: Parties) -> type[Message]:
        return GlobalModel

    def send(self, parties: Parties, step: int) -> Sent:
        return Sent() if parties.server is None else Sent(server.broadcast(parties.server, step))

    def expects(self, parties: Parties, step: int) -> dict[int, tuple[int, ...]]:
        return dict.fromkeys(parties.devices, (SERVER,))

    def fault(self, parties: Parties, message: Message) -> str | None:
        return _model_fault(parties.rules, cast(GlobalModel, message))

    def use(self, parties: Parties, party: int, messages: list[Message], step: int) -> None:
        for message in messages:
            parties.devices[party] = device.adopt(
                parties.rules.setting, parties.devices[party], cast(GlobalModel, message)
            )


@final
class Push(Phase):
    """Receivers push their reserves; transmitters keep them for scoring, Eq. (6) and (13)."""

    def kind(self, parties: Parties) -> type[Message]:
        return RESERVES[parties.rules.setting.config.exchange.mode]

    def send(self, parties: Parties, step: int) -> Sent:
        found: list[Message] = []
        for i, state in parties.devices.items():
            parties.devices[i], mine = device.push(
                parties.rules.setting, state, step, parties.rules.graph.neighbours(i)
            )
            found += mine
        return Sent(found)

    def expects(self, parties: Parties, step: int) -> dict[int, tuple[int, ...]]:
        return {
            j: tuple(
                i for i in parties.rules.graph.neighbours(j) if device.reserve_due(parties.rules.setting, j, i) > 0
            )
            for j in parties.devices
        }

    def fault(self, parties: Parties, message: Message) -> str | None:
        reserve = cast(Reserve, message)
        size = device.reserve_due(parties.rules.setting, reserve.target, reserve.source)
        if len(reserve.content) == 0:
            return "the reserve is empty"
        column = torch.zeros(len(reserve.content), dtype=torch.float32)
        if reserve.numbers is not None and (found := unlike("numbers", reserve.numbers, column)):
            return found
        if reserve.numbers is None and parties.rules.setting.policy.measure is not None:
            return "has no numbers, where the method sends one with each point"
        if reserve.numbers is not None and parties.rules.setting.policy.measure is None:
            return "has numbers, where the method sends none"
        return _content_fault(parties.rules.setting, "the reserve", reserve, size)

    def use(self, parties: Parties, party: int, messages: list[Message], step: int) -> None:
        for message in messages:
            parties.devices[party] = device.store(parties.devices[party], cast(Reserve, message))


@final
class Request(Phase):
    """Receivers ask each neighbour for items; transmitters note it."""

    def kind(self, parties: Parties) -> type[Message]:
        return PullRequest

    def send(self, parties: Parties, step: int) -> Sent:
        found: list[Message] = []
        for i, state in parties.devices.items():
            mine = device.request(parties.rules.setting, state, step, parties.rules.graph.neighbours(i))
            parties.devices[i] = replace(state, asked={message.target: message.num_items for message in mine})
            found += mine
        return Sent(found)

    def expects(self, parties: Parties, step: int) -> dict[int, tuple[int, ...]]:
        return {j: _paying(parties.rules, j, step, transmits=True) for j in parties.devices}

    def fault(self, parties: Parties, message: Message) -> str | None:
        request = cast(PullRequest, message)
        most = parties.rules.most(request.target, request.source, request.step)
        if not (0 if parties.rules.setting.adaptive else 1) <= request.num_items <= most:
            return f"asks for {request.num_items} items, where the budget of the link is {most}"
        return None

    def use(self, parties: Parties, party: int, messages: list[Message], step: int) -> None:
        requests = tuple(cast(PullRequest, message) for message in messages)
        parties.devices[party] = replace(parties.devices[party], requests=requests)


@final
class Deliver(Phase):
    """Transmitters draw candidates and send what each receiver needs most (Alg. 2 and 3); receivers absorb it."""

    def kind(self, parties: Parties) -> type[Message]:
        return ITEMS[parties.rules.setting.config.exchange.mode]

    def send(self, parties: Parties, step: int) -> Sent:
        states = device.prepare(parties.rules.setting, list(parties.devices.values()), step)
        answers = device.answer(parties.rules.setting, [(state, state.requests) for state in states], step)
        mine: dict[int, list[Answer]] = {state.id: [] for state in states}
        for reply in answers:
            mine[reply.items.source].append(reply)
        for state in states:
            parties.devices[state.id] = replace(
                device.remember(parties.rules.setting, state, mine[state.id]), requests=()
            )
        return Sent([reply.items for reply in answers], answers)

    def expects(self, parties: Parties, step: int) -> dict[int, tuple[int, ...]]:
        return {i: _paying(parties.rules, i, step, transmits=False) for i in parties.devices}

    def fault(self, parties: Parties, message: Message) -> str | None:
        items = cast(Items, message)
        setting, most = parties.rules.setting, parties.rules.budget(items.source, items.target, items.step)
        if setting.adaptive:  # then what was asked for is not known beforehand
            most = parties.devices[items.target].asked.get(items.source, 0)
        return _news_fault(setting, items) or _content_fault(setting, "what was sent", items, most)

    def use(self, parties: Parties, party: int, messages: list[Message], step: int) -> None:
        items = [cast(Items, message) for message in messages]
        if items:  # who got nothing keeps what it had
            parties.devices[party] = device.absorb(parties.rules.setting, parties.devices[party], items, step)


@final
@dataclass(frozen=True)
class Update(Phase):
    """Every device makes one update, Eq. (4), unless it rests. Nothing travels."""

    travels: ClassVar[bool] = False
    watch: Watch = nobody

    def kind(self, parties: Parties) -> type[Message]:
        return Message

    def send(self, parties: Parties, step: int) -> Sent:
        reports: list[StepReport] = []
        ids = [i for i in parties.devices if not parties.rules.rests(i, step)]
        for first in range(0, len(ids), MOST_TOGETHER):
            # No more states than these are held: what is replaced shall be freed.
            states = [parties.devices[i] for i in ids[first : first + MOST_TOGETHER]]
            for state, batch in zip(states, device.draw_batches(parties.rules.setting, states, step), strict=True):
                self.watch(state.id, step)
                parties.devices[state.id], report = device.local_step(parties.rules.setting, state, step, batch)
                reports.append(report)
        return Sent(reports=reports)

    def expects(self, parties: Parties, step: int) -> dict[int, tuple[int, ...]]:
        return {}

    def fault(self, parties: Parties, message: Message) -> str | None:
        return None

    def use(self, parties: Parties, party: int, messages: list[Message], step: int) -> None:
        """Nothing arrives."""


def _paying(rules: Rules, party: int, step: int, *, transmits: bool) -> tuple[int, ...]:
    """The neighbours whose link to (or from) `party` has a budget at `step`."""
    near = rules.graph.neighbours(party)
    return tuple(i for i in near if rules.budget(*((party, i) if transmits else (i, party)), step) > 0)


def _news_fault(setting: Setting, items: Items) -> str | None:
    if items.new is None:
        return "does not say how much is new, where budgets are adaptive" if setting.adaptive else None
    if not setting.adaptive:
        return "says how much is new, where budgets are fixed"
    most = setting.budgets.candidates(items.source)
    return None if 0 <= items.new <= most else f"says that {items.new} candidates are new, of {most}"


def _content_fault(setting: Setting, name: str, message: Reserve | Items, most: int) -> str | None:
    if isinstance(message, ActivationReserve | ActivationItems):
        agreed = setting.config.exchange.precision
        if (message.ranges is None) != (agreed == "float32"):
            return f"{name} is of type {message.values.dtype}, where {agreed} was agreed"
        if message.ranges is not None and not bool(message.ranges.isfinite().all()):
            return f"{name} is not finite"
    return _misfit(name, message.content, device.no_items(setting), rows=most)


def _misfit(name: str, tensor: Tensor, like: Tensor, *, rows: int | None = None) -> str | None:
    """How `tensor` differs from `like`, as `unlike` says, or that values are larger than any that are honest."""
    if (found := unlike(name, tensor, like, rows=rows)) is not None:
        return found
    if tensor.is_floating_point() and tensor.numel() > 0 and float(tensor.abs().max()) > LARGEST:
        return f"{name} has values beyond {LARGEST:g}"
    return None


def _sum_fault(parties: Parties, message: ModelSum) -> str | None:
    assert parties.server is not None
    if message.source != SERVER:
        return "is a sum of models, which only the server may send"
    return unlike("the sum", message.total, server.start(parties.server))


def _model_fault(rules: Rules, message: LocalModel | GlobalModel) -> str | None:
    like, extras = rules.setting.encoder.initial, rules.setting.averaged
    if message.extras.keys() != extras.keys():
        return f"its extra state is {sorted(message.extras)}, not {sorted(extras)}"
    pairs = [("params", message.params, like.params), ("buffers", message.buffers, like.buffers)]
    pairs += [(name, message.extras[name], extras[name]) for name in extras]
    return next((found for pair in pairs if (found := _misfit(*pair))), None)
