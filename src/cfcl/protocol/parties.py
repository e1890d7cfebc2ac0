"""Who takes part: devices, and the server as one more party."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from cfcl import device, server
from cfcl.device import DeviceState, Setting
from cfcl.exchange.cost import Ledger
from cfcl.exchange.messages import SERVER
from cfcl.protocol.outages import Outages
from cfcl.server import ServerState
from cfcl.topology import Graph


@dataclass(frozen=True)
class Rules:
    """What all parties know before the first step."""

    setting: Setting
    graph: Graph
    """With every edge that there ever is."""
    outages: Outages | None = None
    """None where nothing goes wrong."""

    def rests(self, device: int, step: int) -> bool:
        """Whether `device` makes no update at `step`."""
        faults = self.setting.config.faults
        return self.outages is not None and not faults.offline_trains and self.outages.offline(device, step)

    def budget(self, transmitter: int, receiver: int, step: int) -> int:
        """How many items `receiver` may pull from `transmitter` at `step`, or add to what it may pull from all."""
        return device.items_wanted(self.setting, transmitter, receiver, step)

    def most(self, transmitter: int, receiver: int, step: int) -> int:
        """How many items `receiver` may ask `transmitter` for at `step` at most: with adaptive budgets what it may pull
        from all its neighbours, up to the candidates there are.
        """
        if not self.setting.adaptive:
            return self.budget(transmitter, receiver, step)
        total = sum(self.budget(other, receiver, step) for other in self.graph.neighbours(receiver))
        return min(total, self.setting.budgets.candidates(transmitter))

    def anyone_pushes(self) -> bool:
        """Whether any link needs a reserve."""
        return any(device.reserve_due(self.setting, *link) > 0 for link in self.graph.links)

    def anyone_pulls(self, step: int) -> bool:
        """Whether the budgets leave anything to exchange at `step`."""
        return any(self.budget(transmitter, receiver, step) > 0 for transmitter, receiver in self.graph.links)


@dataclass
class Parties:
    """The parties that live together, and what they know.

    Changed in place, so that a state that is replaced is freed at once.
    """

    rules: Rules
    devices: dict[int, DeviceState]
    server: ServerState | None = None
    """None where the server is elsewhere."""

    @property
    def ids(self) -> tuple[int, ...]:
        """Who is here."""
        return (*self.devices, *(() if self.server is None else (SERVER,)))


@dataclass
class Run:
    """A run between two steps: plain data, and all of it."""

    step: int
    """Completed updates; one more than the number of steps when the last aggregation is done."""
    hosts: list[Parties]
    """The parties of this process: together, or each by itself."""
    ledger: Ledger
    pulled_labels: dict[int, Tensor] = field(default_factory=dict)
    """Labels of what devices have pulled, where an observer follows relayed items; devices never see them."""
    refused: int = 0
    """Messages that were refused or lost."""
    faults: Counter[str] = field(default_factory=Counter)
    """What has happened to messages of this process's parties, by the names of `records.Faults`."""

    @property
    def devices(self) -> dict[int, DeviceState]:
        """All devices of this process, in order."""
        found = {i: state for host in self.hosts for i, state in host.devices.items()}
        return dict(sorted(found.items()))

    @property
    def server(self) -> ServerState:
        """The server, or this process's share of it."""
        return next(host.server for host in self.hosts if host.server is not None)


def together(rules: Rules, states: Sequence[DeviceState]) -> list[Parties]:
    """One host with all of `states` and the server for them."""
    return [Parties(rules, {state.id: state for state in states}, start_server(rules, [state.id for state in states]))]


def apart(rules: Rules, states: Sequence[DeviceState]) -> list[Parties]:
    """The server and every one of `states`, each on a host of its own."""
    alone = [Parties(rules, {state.id: state}) for state in states]
    return [Parties(rules, {}, start_server(rules, [state.id for state in states])), *alone]


def start_server(rules: Rules, devices: Sequence[int]) -> ServerState:
    """The server, or the share of it that serves `devices`, before the first step."""
    setting = rules.setting
    return server.begin(setting.config.aggregation, setting.encoder.initial, devices, setting.averaged)
