"""The order of a step, and one phase played over a link."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from cfcl import server
from cfcl.config import CostConfig
from cfcl.exchange.messages import Message
from cfcl.protocol.link import Link
from cfcl.protocol.parties import Parties, Rules
from cfcl.protocol.phases import (
    Broadcast,
    Deliver,
    Fold,
    Phase,
    Push,
    Regroup,
    Request,
    Sent,
    Update,
    Upload,
    Watch,
    nobody,
)
from cfcl.protocol.refusals import MISSING, Refusal, permitted

Send = Callable[[Phase, Parties, int], Sent]


@dataclass(frozen=True)
class Round:
    """Phases whose transfers run beside each other: the slowest device decides how long they take."""

    name: Literal["aggregation", "broadcast", "exchange", "update"]
    phases: tuple[Phase, ...]

    def charged(self, cost: CostConfig) -> bool:
        """Whether anything in it costs time on a link."""
        return self.name in ("aggregation", "exchange") or (self.name == "broadcast" and cost.charge_broadcast)


def rounds(rules: Rules, step: int, watch: Watch = nobody) -> list[Round]:
    """What happens at `step`, in order (Alg. 1); after the last update only an aggregation."""
    setting = rules.setting
    found: list[Round] = []
    if setting.schedule.aggregates(step):
        regroup = (Regroup(),) if server.needs_all(setting.config) else ()
        found += [Round("aggregation", (Upload(), *regroup, Fold())), Round("broadcast", (Broadcast(),))]
    exchange = _exchange(rules, step)
    if exchange and step < setting.schedule.num_steps:
        found.append(Round("exchange", exchange))
    if step < setting.schedule.num_steps:
        found.append(Round("update", (Update(watch),)))
    return found


def _exchange(rules: Rules, step: int) -> tuple[Phase, ...]:
    policy, schedule = rules.setting.policy, rules.setting.schedule
    if policy.choose is None:
        return ()
    pushes = schedule.pushes(step) and rules.anyone_pushes()
    pulls = schedule.exchanges(step) and rules.anyone_pulls(step)
    return (*((Push(),) if pushes else ()), *((Request(), Deliver()) if pulls else ()))


@dataclass(frozen=True)
class Played:
    """What a phase has brought about, as far as this process knows."""

    sent: Sequence[Sent]
    """Host by host."""
    inbox: Sequence[Message]
    refusals: Sequence[Refusal]

    @cached_property
    def used(self) -> dict[int, dict[int, Any]]:
        """The messages that were used, by party and sender."""
        lost = {(item.target, item.source) for item in self.refusals if item.reason == MISSING}
        found: dict[int, dict[int, Any]] = {}
        for message in self.inbox:
            if (message.target, message.source) not in lost:
                found.setdefault(message.target, {}).setdefault(message.source, message)
        return found


def plainly(phase: Phase, parties: Parties, step: int) -> Sent:
    """What a phase has its parties send."""
    return phase.send(parties, step)


def play(phase: Phase, hosts: Sequence[Parties], link: Link, step: int, send: Send = plainly) -> Played:
    """One phase for all hosts of this process: everything is sent, carried, and taken in."""
    sent = [send(phase, host, step) for host in hosts]
    if not phase.travels:
        return Played(sent, [], [])
    expected = {party: sources for host in hosts for party, sources in phase.expects(host, step).items()}
    setting = hosts[0].rules.setting
    outbox, withheld = permitted(setting, [message for some in sent for message in some.messages], step)
    inbox = link.carry(phase.kind(hosts[0]), outbox, expected)
    homes = {party: place for place, host in enumerate(hosts) for party in host.ids}
    mail: list[list[Message]] = [[] for _ in hosts]
    for message in inbox:
        mail[homes.get(message.target, 0)].append(message)  # what is for nobody here, the first host refuses
    refusals = [item for host, some in zip(hosts, mail, strict=True) for item in phase.take(host, some, step)]
    return Played(sent, inbox, [*withheld, *refusals])
