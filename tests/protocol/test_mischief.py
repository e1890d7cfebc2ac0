"""The phases under messages that are lost, repeated, reordered or altered: bad ones never count, and nothing breaks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from torch import Tensor

from cfcl import device
from cfcl.config import Config
from cfcl.exchange.messages import Message
from cfcl.protocol.link import Expected
from cfcl.protocol.parties import Parties, Rules, together
from cfcl.protocol.phases import Phase
from cfcl.protocol.refusals import Refusal
from cfcl.protocol.steps import play, rounds
from cfcl.sim import world
from tests.conftest import small

SCENES: dict[str, world.World] = {}
METHODS = (
    "cfcl-explicit",
    "cfcl-implicit",
    "novel-explicit",
    "cover-implicit",
    "uniform-implicit",
    "kmeans-explicit",
    "uniform-explicit-median",
)


def scene(method: str) -> world.World:
    if method not in SCENES:
        name, mode, *rule = method.split("-")
        changes = [f"exchange.method={name}", f"exchange.mode={mode}", *(f"aggregation.rule={word}" for word in rule)]
        SCENES[method] = world.build(small(*changes, "train.steps=40", "exchange.buffer=lasting"))
    return SCENES[method]


def _tensors(message: Message) -> list[str]:
    return [field.name for field in fields(message) if isinstance(getattr(message, field.name), Tensor)]


def _spoilt(message: Message) -> Message:
    """Not finite, where it has numbers; else of another shape."""
    for name in _tensors(message):
        value: Tensor = getattr(message, name)
        if value.is_floating_point() and value.numel():
            changes: dict[str, Any] = {name: value * float("nan")}
            return replace(message, **changes)
    return replace(message, source=99)


MISCHIEF: dict[str, Callable[[Message], list[Message]]] = {
    "lost": lambda message: [],
    "twice": lambda message: [message, message],
    "late": lambda message: [replace(message, step=message.step - 1)],
    "early": lambda message: [replace(message, step=message.step + 1)],
    "stranger": lambda message: [replace(message, source=77)],
    "astray": lambda message: [replace(message, target=99)],
    "spoilt": lambda message: [_spoilt(message)],
}


@dataclass
class Mischievous:
    """A link that does to each message what it is told, and keeps what was in order."""

    deeds: Sequence[str]
    turn: int
    good: list[Message]

    def carry(self, kind: type[Message], outbox: Sequence[Message], expected: Expected) -> list[Message]:
        found: list[Message] = []
        for place, message in enumerate(outbox):
            deed = self.deeds[place % len(self.deeds)] if self.deeds else "kept"
            found += [message] if deed == "kept" else MISCHIEF[deed](message)
            if deed in ("kept", "twice"):
                self.good.append(message)
        return found[self.turn % (len(found) or 1) :] + found[: self.turn % (len(found) or 1)]


def copied(parties: Parties) -> Parties:
    return Parties(parties.rules, dict(parties.devices), parties.server)


def assert_same(one: Any, two: Any) -> None:
    if isinstance(one, Tensor):
        assert torch.equal(one, two)
    elif hasattr(one, "__dataclass_fields__"):
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(two, field.name))
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            assert_same(one[key], two[key])
    elif isinstance(one, tuple):
        assert len(one) == len(two)
        for pair in zip(one, two, strict=True):
            assert_same(*pair)
    else:
        assert one is two or one == two


class Mischief(RuleBasedStateMachine):
    """Steps of a run whose links misbehave."""

    @initialize(method=st.sampled_from(METHODS))
    def begin(self, method: str) -> None:
        found = scene(method)
        images = found.dataset.train_images
        states = [device.start(found.setting, i, images, part) for i, part in enumerate(found.parts)]
        (self.host,) = together(found.rules, states)
        self.step = 0

    @rule(
        deeds=st.lists(st.sampled_from(["kept", "kept", "kept", *MISCHIEF]), max_size=6),
        turn=st.integers(0, 5),
        leap=st.integers(1, 4),
    )
    def go_on(self, deeds: list[str], turn: int, leap: int) -> None:
        self.step += leap
        for item in rounds(self.host.rules, self.step):
            for phase in item.phases:
                self.play(phase, Mischievous(deeds, turn, []))
        for state in self.host.devices.values():
            assert bool(state.weights.params.isfinite().all())
            assert bool(state.pulled.float().isfinite().all())

    def play(self, phase: Phase, link: Mischievous) -> None:
        sender = copied(self.host)
        outbox = phase.send(sender, self.step).messages
        mangled = link.carry(phase.kind(sender), outbox, {})
        with_bad, with_good = copied(sender), copied(sender)
        refusals = phase.take(with_bad, mangled, self.step)
        rest = phase.take(with_good, link.good, self.step)
        assert_same(with_bad.devices, with_good.devices)
        assert_same(with_bad.server, with_good.server)
        self.check(refusals, rest, len(mangled) - len(link.good))
        self.host = with_bad

    def check(self, refusals: list[Refusal], rest: list[Refusal], num_bad: int) -> None:
        """Every bad message is refused once; the missing are the same as if bad ones had been lost."""
        missing = [item for item in refusals if item.reason == "did not arrive"]
        assert missing == rest
        assert len(refusals) - len(missing) == num_bad
        assert all(item.blame in ("sender", "link") and item.step == self.step for item in refusals)


Mischief.TestCase.settings = settings(max_examples=12, stateful_step_count=8, deadline=None)
TestMischief = Mischief.TestCase


@pytest.mark.parametrize("method", METHODS)
def test_without_mischief_nothing_is_refused(method: str) -> None:
    found = scene(method)
    config: Config = found.config
    rules: Rules = found.rules
    images = found.dataset.train_images
    (host,) = together(rules, [device.start(found.setting, i, images, part) for i, part in enumerate(found.parts)])
    for step in range(config.aggregation.period * 2):
        for item in rounds(rules, step):
            for phase in item.phases:
                assert play(phase, [host], Mischievous((), 3, []), step).refusals == []
